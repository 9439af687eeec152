package esdb

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// schemes maps the documented schemes to those that this version of the client parses.
var schemes = map[string]string{
	"esdb": "esdb", "esdb+discover": "esdb+discover",
	"kurrentdb": "esdb", "kurrentdb+discover": "esdb+discover",
	"kurrent": "esdb", "kurrent+discover": "esdb+discover",
	"kdb": "esdb", "kdb+discover": "esdb+discover",
}

// settings are the client's parameters, in lower case.
var settings = map[string]bool{
	"discoveryinterval": true, "gossiptimeout": true, "maxdiscoverattempts": true, "nodepreference": true,
	"keepaliveinterval": true, "keepalivetimeout": true, "tls": true, "tlscafile": true, "usercertfile": true,
	"userkeyfile": true, "tlsverifycert": true, "defaultdeadline": true,
}

// shortestKeepAlive is the shortest interval between pings that servers accept, and the client's default.
const shortestKeepAlive = 10 * time.Second

// Understands reports whether an address has a scheme of EventStoreDB or KurrentDB.
func Understands(address string) bool {
	scheme, _ := cutScheme(address)
	return scheme != ""
}

// Check validates a connection string without connecting. Its error does not contain the password.
func Check(address string) error {
	_, err := configuration(address, slog.New(slog.DiscardHandler))
	return err
}

// cutScheme returns the scheme for the client, and the rest of the address. The scheme is empty if it is unknown.
func cutScheme(address string) (scheme, rest string) {
	scheme, rest, found := strings.Cut(strings.TrimSpace(address), "://")
	if !found {
		return "", ""
	}
	return schemes[strings.ToLower(scheme)], rest
}

// configuration parses a connection string. Its error does not contain the password.
func configuration(address string, log *slog.Logger) (*client.Configuration, error) {
	known, rest := cutScheme(address)
	if known == "" {
		return nil, errors.New("event store address: expected esdb:// or kurrentdb://, or either with +discover")
	}
	rest, parameters, _ := strings.Cut(rest, "?")
	query, err := supported(parameters, log)
	if err != nil {
		return nil, fmt.Errorf("event store address: %w", err)
	}
	if err := checkPorts(rest); err != nil {
		return nil, fmt.Errorf("event store address: %w", err)
	}
	config, err := client.ParseConnectionString(known + "://" + rest + "?" + query)
	if err != nil {
		return nil, fmt.Errorf("event store address: %w", withoutAddress(err))
	}
	if config.DisableTLS && config.Username != "" {
		log.Warn("event store: the user is not sent because the connection is not encrypted")
	}
	config.Logger = clientLogger(log)
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("event store address: %w", err)
	}
	return config, nil
}

// supported removes unknown parameters, which the client would report to the standard logger, and rejects an invalid
// deadline, which the client would ignore.
func supported(parameters string, log *slog.Logger) (query string, err error) {
	values, err := url.ParseQuery(parameters)
	if err != nil {
		return "", errors.New("malformed parameters")
	}
	for key := range values {
		switch name, value := strings.ToLower(key), values.Get(key); {
		case !settings[name]:
			log.Warn("event store: the address has an unknown parameter", "parameter", key)
			values.Del(key)
		case name == "defaultdeadline":
			if ms, err := strconv.Atoi(value); err != nil || ms < 1 {
				return "", errors.New("defaultDeadline is not a number of milliseconds")
			}
		case name == "keepaliveinterval":
			if ms, err := strconv.Atoi(value); err == nil && ms >= 0 &&
				time.Duration(ms)*time.Millisecond < shortestKeepAlive {
				values.Del(key)
			}
		}
	}
	return values.Encode(), nil
}

// checkPorts rejects port numbers out of range. The client would connect to another port, by their lowest 16 bits.
func checkPorts(rest string) error {
	hosts, _, _ := strings.Cut(rest[strings.LastIndex(rest, "@")+1:], "/")
	for host := range strings.SplitSeq(hosts, ",") {
		_, port, _ := strings.Cut(host, ":")
		if n, err := strconv.Atoi(port); err == nil && (n < 1 || n > 65535) {
			return fmt.Errorf("port %d is not between 1 and 65535", n)
		}
	}
	return nil
}

// withoutAddress removes the address from an error.
func withoutAddress(err error) error {
	if parsing := (*url.Error)(nil); errors.As(err, &parsing) {
		return parsing.Err
	}
	return err
}

// clientLogger logs the client's messages. Failures are also returned as errors and logged by the caller, so here they
// are details.
func clientLogger(log *slog.Logger) client.LoggingFunc {
	return func(level client.LogLevel, format string, arguments ...any) {
		if len(arguments) == 1 {
			if inner, nested := arguments[0].([]any); nested { // some calls in the library pass the slice itself
				arguments = inner
			}
		}
		message := "event store client: " + fmt.Sprintf(format, arguments...)
		if level == client.LogWarn {
			log.Info(message)
			return
		}
		log.Debug(message)
	}
}
