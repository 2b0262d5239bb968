// Udp has a hub proxy UDP (RFC 9298) by masque-go, which shares no line with Sennit, to targets
// that echo what they get, all over one connection. It prints one line, "echoed" and how many of
// them did, and runs until its input ends.
//
// It is a module of its own, because masque-go and connect-ip-go want different versions of
// quic-go.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/quic-go/masque-go"
	"github.com/quic-go/quic-go"
	"github.com/yosida95/uritemplate/v3"
)

// path is the default template of RFC 9298 §3.
const path = "/.well-known/masque/udp/{target_host}/{target_port}/"

// largest is a payload that fits a datagram of the connection.
const largest = 1200

// patience is for an echo, which may be lost now and then.
const patience = 500 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "udp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("udp", flag.ContinueOnError)
	hub := flags.String("hub", "", "address and port of the hub")
	name := flags.String("name", "", "name in the hub's certificate")
	ca := flags.String("ca", "", "PEM file with the hub's authority")
	bearer := flags.String("bearer", "", "file with the token that the hub takes")
	targets := flags.String("targets", "", "hosts and ports, with commas between")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", *ca)
	}
	token, err := os.ReadFile(*bearer)
	if err != nil {
		return err
	}
	tlsConfig := &tls.Config{RootCAs: roots, ServerName: *name, NextProtos: []string{"h3"}}
	quicConfig := &quic.Config{EnableDatagrams: true, InitialPacketSize: 1350}
	conn, err := quic.DialAddr(ctx, *hub, tlsConfig, quicConfig)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	transport := masque.Transport{}
	client, err := transport.NewClientConn(conn)
	if err != nil {
		return err
	}

	var flows []*masque.Conn
	for _, target := range strings.Split(*targets, ",") {
		request, err := masque.NewRequest(ctx, uritemplate.MustNew("https://"+*name+path), target)
		if err != nil {
			return err
		}
		request.Header().Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		flow, response, err := client.Dial(request)
		if err != nil {
			if response != nil {
				status := response.Header.Get("Proxy-Status")
				return fmt.Errorf("the hub says %s (%s): %w", response.Status, status, err)
			}
			return err
		}
		defer flow.Close()
		flows = append(flows, flow)
	}
	for _, flow := range flows {
		for size := 1; size <= largest; size += 109 {
			if err := echoed(flow, bytes.Repeat([]byte{byte(size)}, size)); err != nil {
				return err
			}
		}
	}
	fmt.Println("echoed", len(flows))
	<-ctx.Done()
	return nil
}

// echoed sends a payload until it comes back.
func echoed(flow *masque.Conn, payload []byte) error {
	buffer := make([]byte, 1<<16)
	for range 10 {
		if _, err := flow.WriteTo(payload, nil); err != nil {
			return err
		}
		flow.SetReadDeadline(time.Now().Add(patience))
		n, _, err := flow.ReadFrom(buffer)
		if err == nil && bytes.Equal(buffer[:n], payload) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes did not come back", len(payload))
}
