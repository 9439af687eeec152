package main

import (
	"io"
	"log/slog"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

// logger builds the service's log from its settings.
func (s service) logger(w io.Writer) (*slog.Logger, error) {
	var c checker
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

// plainLogger is for commands that people run by hand: text, and only what they should look at.
func plainLogger(c cli.Output) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
