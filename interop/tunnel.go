package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"
)

// path is the default template of RFC 9484 §3 for all hosts and all protocols.
const path = "/.well-known/masque/ip/*/*/"

// mtu is the least that IPv6 allows, so that a packet always fits a datagram of quicConfig.
const mtu = 1280

func quicConfig() *quic.Config {
	return &quic.Config{EnableDatagrams: true, InitialPacketSize: 1400}
}

// join gives a new TUN device its addresses and routes, says so, and carries packets between it and
// the tunnel.
func join(ctx context.Context, name string, own, routes []netip.Prefix, conn *connectip.Conn) error {
	device, err := openTun(name)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := configure(name, own, routes); err != nil {
		return err
	}
	words := []string{"up"}
	for _, address := range own {
		words = append(words, address.Addr().String())
	}
	fmt.Println(strings.Join(words, " "))

	failed := make(chan error, 2)
	go func() { failed <- toTunnel(device, conn) }()
	go func() { failed <- toDevice(device, conn) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func toTunnel(device *os.File, conn *connectip.Conn) error {
	packet := make([]byte, mtu)
	for {
		n, err := device.Read(packet)
		if err != nil {
			return fmt.Errorf("reading the device: %w", err)
		}
		answer, err := conn.WritePacket(packet[:n])
		if err != nil {
			return fmt.Errorf("writing to the tunnel: %w", err)
		}
		if answer != nil {
			device.Write(answer)
		}
	}
}

func toDevice(device *os.File, conn *connectip.Conn) error {
	packet := make([]byte, 1<<16)
	for {
		n, err := conn.ReadPacket(packet)
		if err != nil {
			return fmt.Errorf("reading the tunnel: %w", err)
		}
		if _, err := device.Write(packet[:n]); err != nil {
			return fmt.Errorf("writing to the device: %w", err)
		}
	}
}

func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func configure(name string, own, routes []netip.Prefix) error {
	lines := []string{fmt.Sprintf("link set %s mtu %d up", name, mtu)}
	for _, address := range own {
		line := fmt.Sprintf("address add %s dev %s", address, name)
		if address.Addr().Is6() {
			line += " nodad"
		}
		lines = append(lines, line)
	}
	for _, route := range routes {
		lines = append(lines, fmt.Sprintf("route replace %s dev %s", route, name))
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if output, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, output)
	}
	return nil
}
