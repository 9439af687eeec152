package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGuard_Addresses(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string]string{
		"this host":           "127.0.0.1 127.8.9.10 0.0.0.0 0.1.2.3 ::1 ::",
		"private":             "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd12:3456::1",
		"shared by a carrier": "100.64.0.1 100.127.255.255",
		"link-local":          "169.254.0.1 fe80::1",
		"metadata": "169.254.169.254 168.63.129.16 100.100.100.200 169.254.170.2 fd00:ec2::254 " +
			"fd20:ce::254",
		"multicast and broadcast":    "224.0.0.1 239.255.255.255 255.255.255.255 ff02::1",
		"reserved and documentation": "240.0.0.1 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 2001:db8::1",
		"IPv4 mapped": "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 " +
			"::ffff:168.63.129.16",
		"IPv4 compatible":             "::127.0.0.1 ::169.254.169.254",
		"translated (NAT64)":          "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::a00:1",
		"6to4":                        "2002:7f00:1:: 2002:a9fe:a9fe::1 2002:a00:1::",
		"Teredo":                      "2001::1 2001:0:7f00:1::",
		"with a zone":                 "fe80::1%lo fe80::1%1 ::1%lo 2606:4700:4700::1111%eth0",
		"site-local, no longer valid": "fec0::1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, address := range strings.Fields(addresses) {
				addr := netip.MustParseAddr(address)
				network := "tcp4"
				if addr.Is6() {
					network = "tcp6"
				}
				require.ErrorIs(t, guard(network, netip.AddrPortFrom(addr, 443).String(), nil), errNotPublic, address)
			}
		})
	}
	for _, address := range []string{"8.8.8.8:443", "8.8.8.8:8443", "[2606:4700:4700::1111]:443"} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		require.NoError(t, guard(network, address, nil), address)
	}
	for _, port := range []string{"22", "80", "5432", "6379", "8080"} {
		require.ErrorIs(t, guard("tcp4", "8.8.8.8:"+port, nil), errPort, port)
	}
	require.Error(t, guard("unix", "/run/docker.sock", nil))
}

// The client refuses the addresses of the guard in every notation of a host.
func TestGuard_EveryDial(t *testing.T) {
	t.Parallel()
	client := NewClient(false, 10*time.Second, nil)
	for _, host := range []string{
		"127.0.0.1", "169.254.169.254", "168.63.129.16", "localhost", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/", nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		require.ErrorIs(t, err, errNotPublic, host)
	}
}

func TestPublicError_HidesNames(t *testing.T) {
	t.Parallel()
	private := PublicError(&net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443}, Err: errNotPublic,
	})
	unknown := PublicError(&net.OpError{
		Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "vault.example", IsNotFound: true},
	})
	require.Equal(t, private, unknown)
}

func TestPublicError_HidesNetwork(t *testing.T) {
	t.Parallel()
	at := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 443}
	for given, want := range map[error]string{
		&net.OpError{
			Op: "dial", Net: "tcp", Addr: at, Err: errNotPublic,
		}: "the host does not resolve to a public address",
		&net.OpError{
			Op: "dial", Net: "tcp", Addr: at, Err: errPort,
		}: "the port is neither 443 nor 8443",
		&net.OpError{
			Op:  "dial",
			Err: &net.DNSError{Err: "no such host", Name: "hooks.example", Server: "10.0.0.2:53", IsNotFound: true},
		}: "the host does not resolve to a public address",
		&net.OpError{
			Op: "dial",
			Err: &net.DNSError{
				Err: "read udp 10.0.0.9:7->10.0.0.2:53: i/o timeout", Name: "hooks.example", Server: "10.0.0.2:53",
				IsTimeout: true,
			},
		}: "the host name hooks.example does not resolve: the look-up failed",
		&net.OpError{
			Op: "dial", Net: "tcp", Addr: at, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}: "dial tcp: connect: connection refused",
		&net.OpError{
			Op: "read", Net: "tcp", Source: at, Addr: at, Err: os.NewSyscallError("read", syscall.ECONNRESET),
		}: "read tcp: read: connection reset by peer",
		errors.New("EOF"): "EOF",
	} {
		require.EqualError(t, PublicError(&url.Error{Op: "Post", URL: "https://hooks.example/", Err: given}),
			strings.Replace(want, "EOF", `Post "https://hooks.example/": EOF`, 1))
	}
}
