package httpapi

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/lead"
)

// clientAddress returns the address that a request comes from: the other end of the connection or, when that is a trusted proxy,
// the last address in X-Forwarded-For that is not one. The client itself may have written the addresses before it.
func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	client := address(r.RemoteAddr)
	if !within(client, trusted) {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr := address(strings.TrimSpace(hop))
		if !addr.IsValid() { // whatever stands left of it was not written by a proxy of ours
			break
		}
		client = addr
		if !within(client, trusted) {
			break
		}
	}
	return client
}

// address reads an IP address with or without port. IPv4 in IPv6 is IPv4, and a zone means nothing elsewhere.
func address(text string) netip.Addr {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone("")
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

func within(addr netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// addressBlock returns what shares one quota of failed credentials: an IPv4 address, or the /64 network of an IPv6 address, from
// which a host can choose any address.
func addressBlock(addr netip.Addr) string {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

// userAgent is a header as an event can keep it.
func userAgent(header string) string {
	return strings.ToValidUTF8(header[:min(len(header), lead.MaxUserAgent)], "\uFFFD")
}

var traceParentForm = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// traceParent is a W3C trace context that is well formed, or nothing.
func traceParent(header string) string {
	if header == "" {
		return ""
	}
	parts := traceParentForm.FindStringSubmatch(header)
	if parts == nil || strings.HasPrefix(header, "ff") || strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return ""
	}
	return header
}
