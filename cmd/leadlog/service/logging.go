package service

import (
	"io"
	"log/slog"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

// Logger builds the service's log from its settings.
func (s Settings) Logger(w io.Writer) (*slog.Logger, error) {
	var c cli.Checker
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		c.Refuse("LEADLOG_LOG_LEVEL", s.LogLevel, "debug, info, warn or error")
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	switch {
	case s.LogFormat == "text", s.LogFormat == "" && cli.IsTerminal(w):
		handler = slog.NewTextHandler(w, options)
	case s.LogFormat != "json" && s.LogFormat != "":
		c.Refuse("LEADLOG_LOG_FORMAT", s.LogFormat, "json or text")
	}
	return slog.New(handler), c.Err()
}
