package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// trailPage shows the account's audit log: changes, and accesses to personal data.
type trailPage struct {
	filtered
	parts
	Types   []string
	Records []trailRecord
}

// trailRecord is a record as the page shows it.
type trailRecord struct {
	query.TrailRecord
	Page    string // of its object, below the console's path; empty if there is none
	Details []trailDetail
}

// trailDetail is a member of a record's data, or a setting that changed.
type trailDetail struct {
	Name, Old, New string
	Changed        bool
}

// Object is the display name of a record's object. The id is shown on hover.
func (r trailRecord) Object() string {
	if !event.ValidID(r.Subject) {
		return r.Subject
	}
	kind, act, _ := strings.Cut(r.Type, ".")
	if kind == "data" {
		kind = act
	}
	return cmp.Or(objectNames[kind], r.Subject)
}

func (v *visit) trail() (screen, error) {
	p := v.params()
	shown := trailPage{filtered: p.filtered("since", "until", "type", "actor", "subject"), Types: query.TrailTypes()}
	shown.show("type", words)
	filter, page := trailFilter(p), p.page()
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		return screen{name: "trail", title: "Audit log", status: http.StatusBadRequest, data: shown}, nil
	}
	list, err := v.Query.LatestTrail(v.ctx, v.identity.Account, filter, page)
	if err != nil {
		return screen{}, err
	}
	for _, record := range list.Items {
		shown.Records = append(shown.Records, trailRecord{record, v.pageOf(record), details(record)})
	}
	shown.parts = p.parts(page, list.NextCursor)
	these := v.get("audit:read", "These records", "/api/v1/crm/audit/events", "type", filter.Type, "actor",
		filter.Actor, "subject", filter.Subject,
		"since", stamp(filter.Since), "until", stamp(filter.Until))
	return screen{
		name: "trail", title: "Audit log", data: shown, live: page.Cursor == "",
		calls: v.calls(these.withNote(oldestFirst)),
	}, nil
}

func trailFilter(p *params) query.TrailFilter {
	f := query.TrailFilter{
		Type: strings.ToLower(p.text("type")), Actor: p.text("actor"), Subject: p.text("subject"),
		Since: p.day("since"), Until: p.until("until"),
	}
	if f.Type != "" && !query.TrailPattern(f.Type) {
		p.wrong.Add("type", "must be a type of event such as webhook.updated or webhook.*")
	}
	return f
}

// pageOf returns the page of a record's object, if there is one and the user may see it.
func (v *visit) pageOf(record query.TrailRecord) string {
	kind, act, _ := strings.Cut(record.Type, ".")
	var data struct{ LeadID, ArrivalID string }
	if record.Type == "data.revealed" {
		// a record that cannot be read has no link
		_ = json.Unmarshal(record.Data, &data, json.MatchCaseInsensitiveNames(true))
		kind = "lead"
		if data.ArrivalID != "" {
			kind = "arrival"
		}
	}
	for _, page := range []struct{ kind, path, scope string }{
		{"lead", "/leads/", "leads:read"}, {"arrival", "/arrivals/", "leads:read"},
		{"webhook", "/webhooks/", "webhooks:read"}, {"intake", "/intakes/", "intakes:read"},
	} {
		if kind == page.kind && act != "erased" && act != "deleted" && v.identity.May(page.scope) {
			return page.path + record.Subject
		}
	}
	return ""
}

// details are the members of a record's data in order, as text, without the id of its object.
func details(record query.TrailRecord) []trailDetail {
	var members map[string]jsontext.Value
	if json.Unmarshal(record.Data, &members) != nil {
		return nil
	}
	var all []trailDetail
	for name, value := range members {
		if plain(value) == record.Subject {
			continue
		}
		var change struct {
			Old jsontext.Value `json:"old"`
			New jsontext.Value `json:"new"`
		}
		if value.Kind() == '{' && json.Unmarshal(value, &change, json.RejectUnknownMembers(true)) == nil &&
			change.New != nil {
			all = append(all, trailDetail{name, shownSetting(change.Old), shownSetting(change.New), true})
			continue
		}
		all = append(all, trailDetail{Name: name, New: shownSetting(value)})
	}
	slices.SortFunc(all, func(a, b trailDetail) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// shownSetting returns a text as it is, a list of texts separated by commas, and any other value as JSON.
func shownSetting(value jsontext.Value) string {
	var list []string
	switch {
	case value == nil, value.Kind() == 'n':
		return "–"
	case value.Kind() == '[' && json.Unmarshal(value, &list) == nil:
		return cmp.Or(strings.Join(list, ", "), "–")
	}
	return plain(value)
}
