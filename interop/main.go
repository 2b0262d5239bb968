// Interop joins a TUN device to a CONNECT-IP tunnel (RFC 9484) made by connect-ip-go, which shares
// no line with Sennit: as the client of a Sennit hub, or as the proxy that a Sennit edge uses. The
// kernel at the other end of the TUN device is what talks, so pings and TCP connections prove that
// packets pass both ways.
//
// It prints one line, "up" and the inner addresses in use, and runs until its input ends.
//
// It is also both ends of the QUIC performance protocol, by quic-go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

const usage = `usage: interop client --device NAME --hub ADDR:PORT --name NAME --ca FILE --bearer FILE
       interop proxy  --device NAME --listen ADDR:PORT --name NAME --cert FILE --key FILE
                      --bearer FILE --own ADDR,ADDR --assign ADDR,ADDR
       interop perf-server --listen ADDR:PORT
       interop perf-client --server ADDR:PORT [--down BYTES] [--up BYTES] [--streams N]`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	ctx := untilInputEnds()
	switch args[0] {
	case "client":
		return client(ctx, args[1:])
	case "proxy":
		return proxy(ctx, args[1:])
	case "perf-server":
		return perfServer(ctx, args[1:])
	case "perf-client":
		return perfClient(args[1:])
	default:
		return fmt.Errorf("%s", usage)
	}
}

// untilInputEnds is done when whoever started this program is gone or has closed its input.
func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}
