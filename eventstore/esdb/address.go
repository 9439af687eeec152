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

// schemes maps what the documentation allows to what this version of the client understands.
var schemes = map[string]string{
	"esdb": "esdb", "esdb+discover": "esdb+discover",
	"kurrentdb": "esdb", "kurrentdb+discover": "esdb+discover",
	"kurrent": "esdb", "kurrent+discover": "esdb+discover",
	"kdb": "esdb", "kdb+discover": "esdb+discover",
}

// settings are the parameters that the client knows, in lower case.
var settings = map[string]bool{
	"discoveryinterval": true, "gossiptimeout": true, "maxdiscoverattempts": true, "nodepreference": true,
	"keepaliveinterval": true, "keepalivetimeout": true, "tls": true, "tlscafile": true, "usercertfile": true,
	"userkeyfile": true, "tlsverifycert": true, "defaultdeadline": true,
}

// shortestKeepAlive is the least that servers accept between pings. It is what the client does when it is not told.
const shortestKeepAlive = 10 * time.Second

// Understands reports whether an address has a scheme of EventStoreDB's or KurrentDB's.
func Understands(address string) bool {
	scheme, _ := cutScheme(address)
	return scheme != ""
}

// Check says what is wrong with a connection string. It connects to nobody, and does not tell the password.
func Check(address string) error {
	_, err := configuration(address, slog.New(slog.DiscardHandler))
	return err
}

// cutScheme returns the scheme as the client knows it, and what follows; no scheme when it knows none like that.
func cutScheme(address string) (scheme, rest string) {
	scheme, rest, found := strings.Cut(strings.TrimSpace(address), "://")
	if !found {
		return "", ""
	}
	return schemes[strings.ToLower(scheme)], rest
}

// configuration reads a connection string. No error tells the password.
func configuration(address string, log *slog.Logger) (*client.Configuration, error) {
	known, rest := cutScheme(address)
	if known == "" {
		return nil, errors.New("event store address: expected esdb:// or kurrentdb://, or either with +discover")
	}
	rest, parameters, _ := strings.Cut(rest, "?")
	query, err := understood(parameters, log)
	if err != nil {
		return nil, fmt.Errorf("event store address: %w", err)
	}
	config, err := client.ParseConnectionString(known + "://" + rest + "?" + query)
	if err != nil {
		return nil, fmt.Errorf("event store address: %w", withoutAddress(err))
	}
	if config.DisableTLS && config.Username != "" {
		log.Warn("event store: the user's name is not sent, as the connection is not encrypted")
	}
	config.Logger = tell(log)
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("event store address: %w", err)
	}
	return config, nil
}

// understood leaves out what the client does not know. It would complain through the standard logger, which is not
// ours, while it reads the address; and it takes a deadline that is no number in silence.
func understood(parameters string, log *slog.Logger) (query string, err error) {
	values, err := url.ParseQuery(parameters)
	if err != nil {
		return "", errors.New("parameters that cannot be read")
	}
	for key := range values {
		switch name, value := strings.ToLower(key), values.Get(key); {
		case !settings[name]:
			log.Warn("event store: the address has a parameter that means nothing here", "parameter", key)
			values.Del(key)
		case name == "defaultdeadline":
			if ms, err := strconv.Atoi(value); err != nil || ms < 1 {
				return "", errors.New("defaultDeadline is not a number of milliseconds")
			}
		case name == "keepaliveinterval":
			if ms, err := strconv.Atoi(value); err == nil && ms >= 0 && time.Duration(ms)*time.Millisecond < shortestKeepAlive {
				values.Del(key)
			}
		}
	}
	return values.Encode(), nil
}

// withoutAddress takes from an error the address it repeats.
func withoutAddress(err error) error {
	if parsing := (*url.Error)(nil); errors.As(err, &parsing) {
		return parsing.Err
	}
	return err
}

// tell passes on what the client logs. Failures come back as errors too and are told by whoever gives up on them,
// so here they are details.
func tell(log *slog.Logger) client.LoggingFunc {
	return func(level client.LogLevel, format string, arguments ...any) {
		if len(arguments) == 1 {
			if inner, nested := arguments[0].([]any); nested { // some callers forget to spread them
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
