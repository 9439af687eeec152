package console

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/query"
)

// consentsShown are the consents of a lead, masked or not.
type consentsShown struct {
	LeadID   string
	Current  []query.Consent // the latest of each purpose; one that is only known by its purpose has no event
	Earlier  []query.Consent // newest first
	Show     string          // query string of the page that has when and how each was given; empty: this one
	Revealed bool
	May      bool // the user may record them
}

// consents returns the consents of a lead. They are read from the log if it is short, or if the user asks for them.
func (v *visit) consents(p *params, timeline query.Timeline, mask masker) (*consentsShown, error) {
	of := timeline.Lead
	shown := &consentsShown{LeadID: of.LeadID, Revealed: mask.revealed, May: v.identity.May("leads:write")}
	if timeline.Latest >= readParts && p.text("consents") != "show" {
		shown.Show = p.with("consents", "show")
		for _, purpose := range slices.Sorted(maps.Keys(of.Consents)) {
			var one query.Consent
			one.Purpose, one.Granted = purpose, of.Consents[purpose]
			shown.Current = append(shown.Current, one)
		}
		return shown, nil
	}
	all, err := v.Query.Consents(v.ctx, v.identity.Account, of.LeadID, false)
	if err != nil {
		return nil, err
	}
	current, err := v.Query.Consents(v.ctx, v.identity.Account, of.LeadID, true)
	if err != nil {
		return nil, err
	}
	latest := map[[2]string]bool{}
	for _, c := range current {
		latest[[2]string{c.Purpose, c.EventID}] = true
		shown.Current = append(shown.Current, c)
	}
	slices.SortFunc(shown.Current, func(a, b query.Consent) int { return strings.Compare(a.Purpose, b.Purpose) })
	for _, c := range slices.Backward(all) {
		if !latest[[2]string{c.Purpose, c.EventID}] {
			shown.Earlier = append(shown.Earlier, c)
		}
	}
	return shown, nil
}

// recordConsent records a consent or its withdrawal.
func (v *visit) recordConsent() (screen, error) {
	form, err := v.form()
	if err != nil {
		return screen{}, err
	}
	given := map[string]any{"purpose": form.Get("purpose"), "granted": form.Get("granted") != "false"}
	for _, name := range []string{"text", "method"} {
		if value := strings.TrimSpace(form.Get(name)); value != "" {
			given[name] = value
		}
	}
	id := v.id("id")
	_, position, err := v.Commands.RecordConsents(v.ctx, command.RecordConsents{
		Caller: v.caller, LeadID: id, Consents: jsontext.Value(mustJSON(given)),
	})
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.LeadView)
	return screen{redirect: v.path("/leads/" + id + "#consents")}, nil
}
