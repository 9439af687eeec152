// Package outbound makes requests to URLs that customers chose: a client that connects only to public addresses, and
// the schedule of retries.
package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/leadlog/leadlog/command/webhook"
)

// NewClient returns a client that follows no redirects and uses no proxy. Unless private targets are allowed, it
// connects only to public addresses. Its errors may name addresses and, with their query, URLs: see PublicError.
func NewClient(privateTargets bool, timeout time.Duration, resolver *net.Resolver) *http.Client {
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, Resolver: resolver}
	if !privateTargets {
		dialer.Control = guard
	}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: timeout,
			MaxIdleConns: 1024, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
	}
}

var (
	errNotPublic = errors.New("the host does not resolve to a public address")
	errPort      = errors.New("the port is neither 443 nor 8443")
)

// azureWire is a public address that serves each machine on Azure its own configuration.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

var publicHosts = ssrf.New(ssrf.WithPorts(webhook.PublicPorts...), ssrf.WithDeniedV4Prefixes(azureWire))

// guard is a dialer's Control that allows only connections to public addresses. It is called at every dial, after name
// resolution, with the address to connect to.
func guard(network, address string, c syscall.RawConn) error {
	err := publicHosts.Safe(network, address, c)
	switch {
	case errors.Is(err, ssrf.ErrProhibitedPort):
		return errPort
	case err != nil:
		return errNotPublic
	}
	return nil
}

// PublicError removes details from an error that the owner of a URL must not learn: the address that a name resolves
// to, which would let them explore a network from within, and the addresses of the name server and of this host, which
// the error of a failed lookup quotes.
func PublicError(err error) error {
	var name *net.DNSError
	var at *net.OpError
	switch {
	case errors.Is(err, errNotPublic), errors.As(err, &name) && name.IsNotFound:
		return errNotPublic // the same text for both, so that it does not reveal which names resolve
	case errors.Is(err, errPort):
		return errPort
	case errors.As(err, &name):
		return fmt.Errorf("the host name %s does not resolve: the look-up failed", name.Name)
	case errors.As(err, &at):
		return &net.OpError{Op: at.Op, Net: at.Net, Err: at.Err}
	}
	return err
}
