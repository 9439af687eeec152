package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/query"
)

var accountFields = recordFields[query.Account]()

// configureAccount replaces the settings of any account, not only of the administrator's own.
func (ex *exchange) configureAccount() (answer, error) {
	body, err := ex.fields(accountFields...)
	if err != nil {
		return answer{}, err
	}
	if body.members == nil { // {} is required for the defaults: a missing body is probably a mistake
		return answer{}, bad("body", "must be a JSON object")
	}
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
	id := ex.pathID()
	state, position, err := ex.Commands.ConfigureAccount(ex.ctx, command.ConfigureAccount{
		Caller: ex.caller, AccountID: id, Settings: settings, JWTNotBefore: notBefore,
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
func (ex *exchange) showRetention() (answer, error) {
	if err := ex.waitFor(ex.params(), query.AccountView, query.LeadView); err != nil {
		return answer{}, err
	}
	leave, err := ex.enterStream()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	return found(ex.Query.Retention(ex.ctx, ex.caller.Account))
}

func (ex *exchange) showAccount() (answer, error) {
	id := ex.pathID()
	if !account.ValidID(id) {
		return answer{}, errNoAccount
	}
	if err := ex.waitFor(ex.params(), query.AccountView); err != nil {
		return answer{}, err
	}
	record, err := withCatchUp(ex, func() (query.Account, error) {
		return ex.Query.Account(ex.ctx, id)
	}, query.AccountView)
	return found(record, missing(err, errNoAccount))
}
