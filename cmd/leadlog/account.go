package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

type accountCommand struct {
	Set accountSetCommand `cmd:"" help:"Provision an account, or change the given settings of one."`
}

type accountSetCommand struct {
	service.Database `embed:""`

	ID        string   `arg:"" help:"1 to 64 letters, digits, _ and -."`
	Name      *string  `placeholder:"TEXT" help:"Name of the account, for people."`
	Feature   []string `sep:"none" placeholder:"NAME" help:"Feature of the plan; crm_api lets the account capture. May be repeated. An empty one removes all features."`
	Stage     []string `sep:"none" placeholder:"NAME" help:"Stage of the pipeline, in order. May be repeated. An empty one sets the default, which a new account has: new, contacted, qualified, negotiation, won, lost."`
	Region    *string  `placeholder:"CODE" help:"Country whose phone numbers need no country code. Default of a new account: IN."`
	Currency  *string  `placeholder:"CODE" help:"ISO 4217 code of the currency that values of leads are in. Default of a new account: that of its region."`
	RateLimit *float64 `placeholder:"N" help:"Captures a second; 0 means no limit. Default of a new account: that of the service."`
	RateBurst *int     `placeholder:"N" help:"Burst of captures. Default of a new account: that of the service."`

	TokensSeeLeads *bool `negatable:"" help:"Let answers to API tokens show what earlier arrivals stored of a lead. Default of a new account: yes."`
	VisitorDays    *int  `placeholder:"N" help:"Days after its last activity until a visitor without a lead is forgotten: 1 to 3650. Default of a new account: 395."`

	Quarantine     *bool    `negatable:"" help:"Keep captures by the API with invalid fields, to be corrected. Default of a new account: no."`
	QuarantineDays *int     `placeholder:"N" help:"Days until the content of an arrival is deleted: 1 to 365. Default of a new account: 30."`
	StoragePerDay  *int     `placeholder:"BYTES" help:"Bytes that captures, posts to intakes and visitors' activity may append to the log in a day; 0 means no limit. Default of a new account: 1073741824, which is 1 GiB."`
	WonStage       []string `sep:"none" placeholder:"NAME" help:"Stage that counts as a conversion. May be repeated. An empty one sets the default, which a new account has: won."`

	IgnoreContact []string `sep:"none" placeholder:"CONTACT" help:"Phone, email, *@domain or local@* that identifies no person: captures are taken as if they did not have it. May be repeated. An empty one removes all."`
	SharedAfter   *int     `placeholder:"N" help:"Phones of one lead after which its emails no longer identify a person who comes with another phone, and likewise emails: 0 to 1000; 0 means never. Default of a new account: 10."`

	RetentionDays *int     `placeholder:"N" help:"Days after its last arrival or change until a lead is erased: 30 to 3650; 0 means never. Default of a new account: 0."`
	KeepStage     []string `sep:"none" placeholder:"NAME" help:"Stage whose leads are kept whatever --retention-days says. May be repeated. An empty one keeps none. Default: the stages of --won-stage."`

	MaskInConsole *bool `negatable:"" help:"Mask names, phones, emails and other personal data in the console until they are revealed. A reveal is recorded either way. Default of a new account: yes."`

	JWTNotBefore *string `name:"jwt-not-before" placeholder:"TIME" help:"Reject JWTs that were issued before this time, such as 2006-01-02T15:04:05Z."`
}

// Run is leadlog account set.
func (a *accountSetCommand) Run(ctx context.Context, c cli.Output) error {
	configure, err := a.parse()
	if err != nil {
		return err
	}
	log := cli.Logger(c)
	views, events, private, err := a.Database.Open(ctx, log)
	if err != nil {
		return err
	}
	defer service.StopPrivate(private, log)
	store, err := service.OpenLog(ctx, events, log)
	if err != nil {
		return err
	}
	defer store.Close()
	pool, err := service.OpenViews(ctx, views)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := projection.CheckLog(ctx, pool, store); err != nil {
		return err
	}
	handlers := command.NewHandlers(command.Options{Store: store, Log: log})
	state, position, err := handlers.ConfigureAccount(ctx, configure)
	var wrong field.Errors
	if errors.As(err, &wrong) {
		return refusedFlags(wrong)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out,
		"account %s: features %s; stages %s; won stages %s; region %s; currency %s%s; visitors for %d days; arrivals "+
			"for %d days%s%s%s%s%s (position %d)\n", a.ID,
		orNone(state.Features), strings.Join(state.Stages, ", "), strings.Join(state.WonStages, ", "), state.Region,
		state.Currency, hidesLeads(state), state.VisitorDays, state.QuarantineDays, quarantines(state), limits(state),
		retains(state), unmasked(state), revoked(state), position)
	return nil
}

// parse reads the arguments. An empty text is refused, because it would change nothing: a script with an unset variable
// would take that for success.
func (a *accountSetCommand) parse() (command.ConfigureAccount, error) {
	var check cli.Checker
	a.Database.Check(&check)
	text := func(flag string, value *string) string {
		if value == nil {
			return ""
		}
		given := strings.TrimSpace(*value)
		if given == "" {
			check.Refuse(flag, *value, "not empty; left out, it changes nothing")
		}
		return given
	}
	name, region, currency := text("--name", a.Name), text("--region", a.Region), text("--currency", a.Currency)
	var notBefore time.Time
	if a.JWTNotBefore != nil {
		notBefore = check.Time("--jwt-not-before", *a.JWTNotBefore,
			"a time after the beginning of the year 1, such as 2006-01-02T15:04:05Z")
	}
	return command.ConfigureAccount{
		Caller:    command.Caller{Actor: "system:cli"},
		AccountID: a.ID,
		Settings: account.Settings{
			Name: name, Features: named(a.Feature), Stages: named(a.Stage), Region: region, Currency: currency,
			RateLimit: a.RateLimit, RateBurst: a.RateBurst, TokensSeeLeads: a.TokensSeeLeads,
			VisitorDays: a.VisitorDays, Quarantine: a.Quarantine, QuarantineDays: a.QuarantineDays,
			WonStages: named(a.WonStage), StoragePerDay: a.StoragePerDay, IgnoredContacts: named(a.IgnoreContact),
			SharedAfter: a.SharedAfter, RetentionDays: a.RetentionDays, KeepStages: named(a.KeepStage),
			MaskInConsole: a.MaskInConsole,
		},
		Patch:        true,
		JWTNotBefore: notBefore,
	}, check.Err()
}

// flagsOf are the arguments that give the fields of an account's settings.
var flagsOf = map[string]string{
	"accountId": "ID", "name": "--name", "features": "--feature", "stages": "--stage", "wonStages": "--won-stage",
	"region": "--region", "currency": "--currency", "rateLimit": "--rate-limit", "rateBurst": "--rate-burst",
	"visitorDays": "--visitor-days", "quarantineDays": "--quarantine-days", "storagePerDay": "--storage-per-day",
	"ignoredContacts": "--ignore-contact", "sharedAfter": "--shared-after",
	"retentionDays": "--retention-days", "keepStages": "--keep-stage", "jwtNotBefore": "--jwt-not-before",
}

// refusedFlags names the arguments whose values were refused, and not the fields as a request has them.
func refusedFlags(wrong field.Errors) error {
	var refused []error
	for _, e := range wrong {
		refused = append(refused, fmt.Errorf("%s %s", cmp.Or(flagsOf[e.Field], e.Field), e.Message))
	}
	return &cli.UsageError{Err: errors.Join(refused...)}
}

// named returns the names of a repeated flag: nil, which changes nothing, if the flag was not given, and an empty list
// if it was given one empty name.
func named(given []string) []string {
	if len(given) == 1 && given[0] == "" {
		return []string{}
	}
	return given
}

// retains returns the note of how long leads are kept, or "".
func retains(state account.State) string {
	if state.RetentionDays == 0 {
		return ""
	}
	return fmt.Sprintf("; leads for %d days but in %s", state.RetentionDays, orNone(state.KeepStages))
}

// unmasked returns the note that the console masks nothing, or "".
func unmasked(state account.State) string {
	if !state.UnmaskedInConsole {
		return ""
	}
	return "; unmasked in the console"
}

// hidesLeads returns the note that API tokens do not see leads, or "".
func hidesLeads(state account.State) string {
	if state.TokensSeeLeads {
		return ""
	}
	return "; tokens do not see leads"
}

// quarantines returns the note that refused captures are kept, or "".
func quarantines(state account.State) string {
	if !state.Quarantine {
		return ""
	}
	return "; refused captures are kept"
}

// limits returns the note of the account's own limits, or "" when it has the usual ones.
func limits(state account.State) (note string) {
	switch {
	case state.RateLimit == nil:
	case *state.RateLimit == 0:
		note = "; captures without a limit"
	default:
		note = "; captures " + strconv.FormatFloat(*state.RateLimit, 'f', -1, 64) + " a second"
	}
	if state.RateBurst != nil {
		note += "; burst " + strconv.Itoa(*state.RateBurst)
	}
	switch state.StoragePerDay {
	case event.DefaultStoragePerDay:
	case 0:
		note += "; storage without a limit"
	default:
		note += "; storage of " + strconv.Itoa(state.StoragePerDay) + " bytes a day"
	}
	if len(state.IgnoredContacts) > 0 {
		note += "; ignored contacts " + strings.Join(state.IgnoredContacts, ", ")
	}
	switch state.SharedAfter {
	case event.DefaultSharedAfter:
	case 0:
		note += "; contacts are never shared"
	default:
		note += "; contacts are shared after " + strconv.Itoa(state.SharedAfter)
	}
	return note
}

// revoked returns the note from when on JWTs are accepted, or "" when the account has revoked none.
func revoked(state account.State) string {
	if state.JWTNotBefore.IsZero() {
		return ""
	}
	return "; JWTs from " + state.JWTNotBefore.Format(time.RFC3339Nano)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
