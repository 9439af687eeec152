package service

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// goodPostgres reports whether an address of PostgreSQL can be used. An address with a second @ most likely has an
// unescaped @ in its password: the part behind it would be taken for the host, and be printed in every error about the
// host.
func goodPostgres(address string) bool {
	if _, err := pgxpool.ParseConfig(address); err != nil {
		return false
	}
	server, _ := splitPostgres(address)
	user, rest := splitUser(server)
	return (strings.HasPrefix(user, "postgres://") || strings.HasPrefix(user, "postgresql://")) &&
		!strings.Contains(rest, "@") &&
		strings.Count(rest, "[") == strings.Count(rest, "]") // they differ when a ? cuts an IPv6 address in two
}

// escaped is a hint about the most frequent mistake in an address that looks right.
const escaped = ", with %40 for an @ and %2F for a / in a password"

// CheckLogURL refuses an invalid address of a log. The message does not show the address, which may contain a password.
func CheckLogURL(c *cli.Checker, name, address string) {
	switch {
	case esdb.Understands(address):
		if err := esdb.Check(address); err != nil {
			c.RefuseSecret(name, address, "a good connection string: "+err.Error())
		}
	case !goodPostgres(address):
		c.RefuseSecret(name, address, "a good URL that begins with postgres://, esdb:// or kurrentdb://"+escaped)
	}
}

// plainPath matches a path without characters that a URL may escape, because the routes know only one spelling.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)

func parseBasePath(c *cli.Checker, value string) string {
	prefix := strings.TrimRight(value, "/")
	if !plainPath.MatchString(prefix) || (prefix != "" && path.Clean(prefix) != prefix) {
		c.Refuse("LEADLOG_BASE_PATH", value, "a path of letters, digits, . _ ~ and -, such as /crm")
	}
	return prefix
}

func parseRate(c *cli.Checker, name, value string) float64 {
	rate, err := strconv.ParseFloat(value, 64)
	if err != nil || !(rate >= 0 && rate <= account.MaxRate) {
		c.Refuse(name, value, fmt.Sprintf("a number of captures a second from 0 to %d", account.MaxRate))
	}
	return rate
}

func parseBurst(c *cli.Checker, name, value string) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > account.MaxRate {
		c.Refuse(name, value, fmt.Sprintf("a whole number from 1 to %d", account.MaxRate))
	}
	return n
}

func parseBoolean(c *cli.Checker, name, value string, unset bool) bool {
	if value == "" {
		return unset
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		c.Refuse(name, value, "true or false")
	}
	return b
}

// Upper bounds of durations. An attempt that hangs occupies one of its endpoint's slots until its timeout.
const (
	maxTimeout = time.Minute
	maxDelay   = 7 * 24 * time.Hour
	maxDrain   = 5 * time.Minute
)

func parseSchedule(c *cli.Checker, name, value string) (delays []time.Duration) {
	for _, part := range list(value) {
		delays = append(delays, parseDuration(c, name, part, maxDelay))
	}
	return delays
}

func parseDuration(c *cli.Checker, name, value string, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 || d > most {
		c.Refuse(name, value, "a time such as 15s or 5m, at most "+most.String())
	}
	return d
}

func parseURL(c *cli.Checker, name, value string) string {
	if u, err := url.Parse(value); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" ||
		u.User != nil {
		c.Refuse(name, value, "an https or http URL")
	}
	return value
}

func parseDrain(c *cli.Checker, name, value string) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxDrain {
		c.Refuse(name, value, "a time such as 5s, at most "+maxDrain.String()+"; 0s stops at once")
	}
	return d
}

func parseNetworks(c *cli.Checker, name, value string) (prefixes []netip.Prefix) {
	for _, part := range list(value) {
		prefix, err := netip.ParsePrefix(part)
		if addr, notPrefix := netip.ParseAddr(part); err != nil && notPrefix == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		// would match nothing: callers' addresses are compared without ::ffff:
		if err != nil || prefix.Addr().Is4In6() {
			c.Refuse(name, part, "a network such as 10.0.0.0/8")
			continue
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes
}

func parseOrigins(c *cli.Checker, name, value string) []string {
	origins := list(value)
	for _, origin := range origins {
		scheme, host, _ := strings.Cut(origin, "://")
		if !plainOrigin.MatchString(origin) || strings.HasSuffix(host, defaultPorts[scheme]) {
			c.Refuse(name, origin, "an origin as browsers write it, such as https://example.com; * is never allowed")
		}
	}
	return origins
}

// plainOrigin matches an origin as browsers write it: in lower case and ASCII, a port only where it is not the scheme's
// own.
var plainOrigin = regexp.MustCompile(`^https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?$`)

var defaultPorts = map[string]string{"https": ":443", "http": ":80"}

func parseKey(c *cli.Checker, name, value string) []byte {
	key, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(key) != 32 {
		c.RefuseSecret(name, value, "32 bytes in base64, such as openssl rand -base64 32 prints")
	}
	return key
}

// parseKeys reads the current key and the earlier ones behind it, separated by commas.
func parseKeys(c *cli.Checker, name, value string) (keys [][]byte) {
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part == "" && value != "" {
			c.RefuseSecret(name, value, "keys with a comma between one and the next: one of them is empty")
			continue
		}
		keys = append(keys, parseKey(c, name, part))
	}
	return keys
}

func list(value string) (parts []string) {
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == port
}

// maxOrigin is how many bytes the name of a log may have.
const maxOrigin = 200

// CheckLogOrigin refuses a name that a log cannot have. If it is empty, the name on the log is used.
func CheckLogOrigin(c *cli.Checker, value string) { parseOrigin(c, "LEADLOG_LOG_ORIGIN", value) }

// parseOrigin reads the name of a log. Names of the trees of accounts are below those of logs, and signed with the same
// keys.
func parseOrigin(c *cli.Checker, name, value string) string {
	printable := strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '+' }) < 0
	if !printable || len(value) > maxOrigin || strings.Contains(value, "/accounts/") {
		c.Refuse(name, value,
			fmt.Sprintf("at most %d visible ASCII characters without a plus sign and /accounts/, such as "+
				"leads.example.com/log", maxOrigin))
	}
	return value
}

func parseWitnesses(c *cli.Checker, name, value string) (witnesses []merkle.Witness) {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	named := map[string]bool{}
	for part := range strings.SplitSeq(value, ",") {
		w, err := merkle.ParseWitness(strings.TrimSpace(part))
		if err != nil {
			c.Refuse(name, part, "VKEY=URL, separated by commas: "+err.Error())
			continue
		}
		if named[w.Key.Name()] {
			c.Refuse(name, part, "witnesses of different names")
		}
		named[w.Key.Name()] = true
		witnesses = append(witnesses, w)
	}
	return witnesses
}

func parseQuorum(c *cli.Checker, name, value string, witnesses int) int {
	if value == "" {
		return witnesses
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > witnesses {
		c.Refuse(name, value, fmt.Sprintf("a number from 1 to that of LEADLOG_WITNESSES, which is %d", witnesses))
	}
	return n
}
