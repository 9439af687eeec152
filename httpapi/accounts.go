package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/query"
)

// configureAccount replaces the settings of any account, not only of the administrator's own.
func (x *exchange) configureAccount() (answer, error) {
	body, err := x.fields()
	if err != nil {
		return answer{}, err
	}
	if body.members == nil { // {} is required for the defaults: a missing body is probably a mistake
		return answer{}, bad("body", "must be a JSON object")
	}
	// A missing setting gets its default, so a misspelt name would reset it. The account as it was answered may be sent
	// back.
	body.only("name", "features", "stages", "region", "currency", "rateLimit", "rateBurst", "tokensSeeLeads",
		"visitorDays", "quarantine", "quarantineDays", "wonStages", "storagePerDay", "ignoredContacts", "sharedAfter",
		"retentionDays", "keepStages", "maskInConsole", "jwtNotBefore", "accountId", "createdAt", "updatedAt")
	settings := account.Settings{
		Name: body.text("name"), Features: body.texts("features"), Stages: body.texts("stages"),
		Region: body.text("region"), Currency: body.text("currency"), RateLimit: body.number("rateLimit"),
		RateBurst: body.integer("rateBurst"), TokensSeeLeads: body.boolean("tokensSeeLeads"),
		VisitorDays: body.integer("visitorDays"), Quarantine: body.boolean("quarantine"),
		QuarantineDays: body.integer("quarantineDays"), WonStages: body.texts("wonStages"),
		StoragePerDay: body.integer("storagePerDay"), IgnoredContacts: body.texts("ignoredContacts"),
		SharedAfter: body.integer("sharedAfter"), RetentionDays: body.integer("retentionDays"),
		KeepStages: body.texts("keepStages"), MaskInConsole: body.boolean("maskInConsole"),
	}
	notBefore := body.time("jwtNotBefore")
	if body.wrong != nil { // fields of the wrong type are empty here: only validate the others
		_, err := account.State{}.Configure(settings, contact.KnownRegion)
		return answer{}, body.with(err)
	}
	id := x.pathID()
	state, position, err := x.Commands.ConfigureAccount(x.ctx, command.ConfigureAccount{
		Caller: x.caller, AccountID: id, Settings: settings, JWTNotBefore: notBefore,
	})
	return answer{position: position, body: envelope{Success: true, Data: query.Account{
		AccountID: id, Name: state.Name, Features: state.Features, Stages: state.Stages, Region: state.Region,
		Currency: state.Currency, RateLimit: state.RateLimit, RateBurst: state.RateBurst,
		TokensSeeLeads: state.TokensSeeLeads, VisitorDays: state.VisitorDays,
		Quarantine: state.Quarantine, QuarantineDays: state.QuarantineDays, WonStages: state.WonStages,
		StoragePerDay: state.StoragePerDay, IgnoredContacts: append([]string{}, state.IgnoredContacts...),
		SharedAfter: state.SharedAfter, RetentionDays: state.RetentionDays, KeepStages: state.KeepStages,
		MaskInConsole: !state.UnmaskedInConsole,
		JWTNotBefore:  query.Timestamp(state.JWTNotBefore), CreatedAt: query.Timestamp(state.CreatedAt),
		UpdatedAt: query.Timestamp(state.UpdatedAt),
	}}}, err
}

// showRetention answers how long the account keeps leads, and how many are due.
func (x *exchange) showRetention() (answer, error) {
	if err := x.waitFor(x.params(), query.AccountView, query.LeadView); err != nil {
		return answer{}, err
	}
	leave, err := x.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	return found(x.Query.Retention(x.ctx, x.caller.Account))
}

func (x *exchange) showAccount() (answer, error) {
	id := x.pathID()
	if !account.ValidID(id) {
		return answer{}, errNoAccount
	}
	if err := x.waitFor(x.params(), query.AccountView); err != nil {
		return answer{}, err
	}
	record, err := withCatchUp(x, func() (query.Account, error) {
		return x.Query.Account(x.ctx, id)
	}, query.AccountView)
	return found(record, missing(err, errNoAccount))
}
