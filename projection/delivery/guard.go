package delivery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/leadlog/leadlog/command/webhook"
)

var (
	errNotPublic = errors.New("the host does not resolve to a public address")
	errPort      = errors.New("the port is neither 443 nor 8443")
)

// azureWire serves every machine on Azure with its own configuration, although it looks public.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

var publicHosts = ssrf.New(ssrf.WithPorts(webhook.PublicPorts...), ssrf.WithDeniedV4Prefixes(azureWire))

// guard is a dialer's Control that allows connections to public addresses only. It is called at every dial, after the name was
// resolved, with the address that is about to be connected to.
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

// tellable leaves out of an error what an endpoint's owner has no business to know: to what address our name server
// takes a name, which would let them explore a network from within, where that name server is, and what address we have.
// The text of a look-up that failed quotes the two ends of the connection to the name server.
func tellable(err error) error {
	var name *net.DNSError
	var at *net.OpError
	switch {
	case errors.Is(err, errNotPublic), errors.As(err, &name) && name.IsNotFound:
		return errNotPublic // one text for both: the other would show which names our name server knows
	case errors.Is(err, errPort):
		return errPort
	case errors.As(err, &name):
		return fmt.Errorf("the host name %s does not resolve: the look-up failed", name.Name)
	case errors.As(err, &at):
		return &net.OpError{Op: at.Op, Net: at.Net, Err: at.Err}
	}
	return err
}
