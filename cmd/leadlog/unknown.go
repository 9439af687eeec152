package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// unknownSettings are the variables of the environment that look like settings and are none: misspelt, or of another version.
type unknownSettings []string

// serviceLink matches what Kubernetes tells every container of a Service that is called leadlog.
var serviceLink = regexp.MustCompile(`^LEADLOG_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)$`)

func findUnknownSettings(model *kong.Application, environment []string) (names unknownSettings) {
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LEADLOG_") && !slices.Contains(settingsOf(model), name) && !serviceLink.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// settingsOf are the variables that any command reads.
func settingsOf(model *kong.Application) (names []string) {
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error { // fails only when this function does
		if flag, is := node.(*kong.Flag); is {
			names = append(names, flag.Envs...)
		}
		return next(nil)
	})
	return names
}

// warn names them. Their values may be secret.
func (u unknownSettings) warn(log *slog.Logger) {
	for _, name := range u {
		log.Warn("the environment has a variable that is no setting of leadlog", "variable", name)
	}
}
