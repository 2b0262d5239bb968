package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/yosida95/uritemplate/v3"
)

// client has a tunnel from a hub and lets the device use it.
func client(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	device := flags.String("device", "", "TUN device to make")
	hub := flags.String("hub", "", "address and port of the hub")
	name := flags.String("name", "", "name in the hub's certificate")
	ca := flags.String("ca", "", "PEM file with the hub's authority")
	bearer := flags.String("bearer", "", "file with the token that the hub takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	roots, err := authority(*ca)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(*bearer)
	if err != nil {
		return err
	}

	transport := connectip.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: *name, NextProtos: []string{"h3"}},
		QUICConfig:      quicConfig(),
		DialAddr: func(ctx context.Context, _ string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, *hub, tlsConfig, config)
		},
	}
	request, err := connectip.NewRequest(ctx, uritemplate.MustNew("https://"+*name+path))
	if err != nil {
		return err
	}
	request.Header().Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	conn, response, err := transport.Dial(request)
	if err != nil {
		if response != nil {
			return fmt.Errorf("the hub says %s: %w", response.Status, err)
		}
		return err
	}
	defer conn.Close()

	assigned, err := conn.ReceiveAddressAssignment(ctx)
	if err != nil {
		return fmt.Errorf("no address: %w", err)
	}
	routes, err := conn.Routes(ctx)
	if err != nil {
		return fmt.Errorf("no routes: %w", err)
	}
	addresses := make([]netip.Prefix, len(assigned))
	for i, address := range assigned {
		addresses[i] = address.IPPrefix
	}
	return join(ctx, *device, addresses, destinations(routes), conn)
}

func authority(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return roots, nil
}

func destinations(routes []connectip.IPRoute) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, route := range routes {
		prefixes = append(prefixes, route.Prefixes()...)
	}
	return prefixes
}
