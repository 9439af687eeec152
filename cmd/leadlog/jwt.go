package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command/account"
)

type jwtCommand struct {
	service.Database `embed:""`
	service.JWT      `embed:""`

	Account string        `required:"" placeholder:"ID" help:"Account that the JWT is for."`
	Subject string        `default:"cli" help:"Subject of the JWT, which the audit trail shows."`
	Scope   *string       `placeholder:"\"SCOPE …\"" help:"Scopes. Default: all but admin."`
	TTL     time.Duration `name:"ttl" default:"1h" help:"Time until it expires."`
}

// Run is leadlog jwt.
func (j *jwtCommand) Run(c cli.Output) error {
	if j.JWTJWKSURL != "" {
		return errors.New("LEADLOG_JWT_JWKS_URL is set: JWTs come from the issuer of that key set, leadlog holds no " +
			"key to sign with")
	}
	if !account.ValidID(j.Account) {
		return cli.Usagef("--account=%q: must be 1 to 64 of letters, digits, _ and -", j.Account)
	}
	if j.TTL < time.Second {
		return cli.Usagef("--ttl=%s: must be a second or more", j.TTL)
	}
	if j.Subject == "" {
		return cli.Usagef("--subject=%q: must not be empty: the audit trail shows it", j.Subject)
	}
	scope, err := j.scope()
	if err != nil {
		return err
	}
	if j.JWTSecret == "" { // use the secret that dev generated
		secret, err := j.KeyDir().Get(service.JWTSecretFile)
		if err != nil {
			return err
		}
		j.JWTSecret = secret
	}
	var check cli.Checker
	if j.JWT.Check(&check); check.Err() != nil {
		return check.Err()
	}
	signed, err := j.Mint(j.Account, j.Subject, scope, j.TTL)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, signed)
	return nil
}

// scope returns the scopes that the flag names. Without the flag, the JWT may do everything in the account; an empty
// --scope is refused, because a shell script with an unset variable would request that by mistake.
func (j *jwtCommand) scope() (string, error) {
	if j.Scope == nil {
		return "", nil
	}
	scopes := strings.Fields(*j.Scope)
	for _, scope := range scopes {
		if !slices.Contains(j.Scopes(), scope) {
			return "", j.badScope(scope)
		}
	}
	if len(scopes) == 0 {
		return "", j.badScope(*j.Scope)
	}
	return strings.Join(scopes, " "), nil
}

func (j *jwtCommand) badScope(given string) error {
	return cli.Usagef("--scope=%q: must be some of %s", given, strings.Join(j.Scopes(), " "))
}
