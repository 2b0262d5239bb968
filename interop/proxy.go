package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"
)

// everywhere is what the proxy offers routes to, in the order that RFC 9484 §4.7.3 asks for.
var everywhere = []connectip.IPRoute{
	{StartIP: netip.MustParseAddr("0.0.0.0"), EndIP: netip.MustParseAddr("255.255.255.255")},
	{
		StartIP: netip.MustParseAddr("::"),
		EndIP:   netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
	},
}

// proxy gives its first client the addresses to assign, and lets the device talk to it.
func proxy(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	device := flags.String("device", "", "TUN device to make")
	listen := flags.String("listen", "", "address and port")
	name := flags.String("name", "", "name that clients know this proxy by")
	cert := flags.String("cert", "", "PEM file with the certificate chain")
	key := flags.String("key", "", "PEM file with its key")
	bearer := flags.String("bearer", "", "file with the token that clients must show")
	own := flags.String("own", "", "inner addresses of the proxy")
	assign := flags.String("assign", "", "inner addresses of the client")
	if err := flags.Parse(args); err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(*bearer)
	if err != nil {
		return err
	}
	ours, err := hosts(*own)
	if err != nil {
		return err
	}
	theirs, err := hosts(*assign)
	if err != nil {
		return err
	}

	template := uritemplate.MustNew("https://" + *name + path)
	authorization := "Bearer " + strings.TrimSpace(string(token))
	conns := make(chan *connectip.Conn, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || r.Header.Get("Authorization") != authorization {
			fmt.Fprintf(os.Stderr, "refused: %s %s\n", r.URL.Path, r.Host)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		request, err := connectip.ParseProxyRequest(r, template)
		if err != nil {
			refuse(w, err)
			return
		}
		conn, err := new(connectip.Proxy).Proxy(w, request)
		if err != nil {
			fmt.Fprintln(os.Stderr, "not proxied:", err)
			return
		}
		select {
		case conns <- conn:
		default:
			conn.Close()
		}
	})
	server := http3.Server{
		Addr:            *listen,
		Handler:         handler,
		EnableDatagrams: true,
		QUICConfig:      quicConfig(),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{
			Certificates: []tls.Certificate{certificate},
			MinVersion:   tls.VersionTLS13,
		}),
	}
	defer server.Close()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	case conn := <-conns:
		defer conn.Close()
		if err := errors.Join(conn.AssignAddresses(theirs), conn.AdvertiseRoute(everywhere)); err != nil {
			return err
		}
		return join(ctx, *device, ours, theirs, conn)
	}
}

func refuse(w http.ResponseWriter, err error) {
	fmt.Fprintln(os.Stderr, "refused:", err)
	status := http.StatusBadRequest
	var parse *connectip.ProxyRequestParseError
	if errors.As(err, &parse) {
		status = parse.HTTPStatus
	}
	w.WriteHeader(status)
}

// hosts reads addresses with commas between them, each as a prefix of its full length.
func hosts(list string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for word := range strings.SplitSeq(list, ",") {
		address, err := netip.ParseAddr(word)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, netip.PrefixFrom(address, address.BitLen()))
	}
	return prefixes, nil
}
