package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/big"
	"time"

	"github.com/quic-go/quic-go"
)

// alpn is the name of the QUIC performance protocol (draft-banks-quic-performance-00 §2.1).
const alpn = "perf"

// zeros is what payload is made of.
var zeros [64 << 10]byte

// perfServer answers each stream with as many bytes as its first eight ask for.
func perfServer(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("perf-server", flag.ContinueOnError)
	listen := flags.String("listen", "", "address and port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{alpn}}
	listener, err := quic.ListenAddr(*listen, config, nil)
	if err != nil {
		return err
	}
	defer listener.Close()
	fmt.Println("up", listener.Addr())
	for {
		conn, err := listener.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go serve(ctx, conn)
	}
}

func serve(ctx context.Context, conn *quic.Conn) {
	for {
		stream, err := conn.AcceptStream(ctx)
		if err != nil {
			return
		}
		go func() {
			defer stream.Close()
			var size uint64
			if binary.Read(stream, binary.BigEndian, &size) != nil {
				return
			}
			if _, err := io.Copy(io.Discard, stream); err != nil {
				return
			}
			send(stream, size)
		}()
	}
}

// perfClient asks for bytes, sends bytes, and prints how many came.
func perfClient(args []string) error {
	ctx := context.Background()
	flags := flag.NewFlagSet("perf-client", flag.ContinueOnError)
	server := flags.String("server", "", "address and port")
	down := flags.Uint64("down", 0, "bytes to ask for on each stream")
	up := flags.Uint64("up", 0, "bytes to send on each stream")
	streams := flags.Int("streams", 1, "streams, one after the other")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "perf", NextProtos: []string{alpn}}
	conn, err := quic.DialAddr(ctx, *server, config, nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	var received int64
	for range *streams {
		stream, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		if err := binary.Write(stream, binary.BigEndian, *down); err != nil {
			return err
		}
		if err := send(stream, *up); err != nil {
			return err
		}
		stream.Close()
		count, err := io.Copy(io.Discard, stream)
		if err != nil {
			return err
		}
		received += count
	}
	if *down > 0 {
		one, err := askOneWay(ctx, conn, *down)
		if err != nil {
			return err
		}
		received += one
	}
	fmt.Println("received", received)
	return nil
}

// askOneWay asks on a stream of one direction, and reads the stream that the server opens for it.
func askOneWay(ctx context.Context, conn *quic.Conn, size uint64) (int64, error) {
	question, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return 0, err
	}
	if err := binary.Write(question, binary.BigEndian, size); err != nil {
		return 0, err
	}
	question.Close()
	answer, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, answer)
}

func send(stream io.Writer, size uint64) error {
	for size > 0 {
		piece := min(size, uint64(len(zeros)))
		if _, err := stream.Write(zeros[:piece]); err != nil {
			return err
		}
		size -= piece
	}
	return nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{alpn},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, nil
}
