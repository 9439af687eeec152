package console

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

// evidence sends the file that proves the content of an event of a lead.
func (v *visit) evidence() (screen, error) {
	eventID := v.id("event")
	is := func(e eventstore.Recorded) bool { return e.ID.String() == eventID }
	stored, err := v.LogTree.LeadEvent(v.ctx, v.identity.Account, v.id("id"), is)
	if err != nil {
		return screen{}, noEvent(err)
	}
	shown, err := v.LogTree.Evidence(v.ctx, stored)
	if err != nil {
		return screen{}, err
	}
	file, err := json.Marshal(shown, jsontext.WithIndent("  "))
	return screen{send: func() error {
		v.w.Header().Set("Content-Type", "application/json")
		v.w.Header().Set("Content-Disposition", `attachment; filename="evidence-`+eventID+`.json"`)
		_, err := v.w.Write(append(file, '\n'))
		return err
	}}, err
}

// noEvent replaces logtree.ErrNotFound by an error that has a page.
func noEvent(err error) error {
	if errors.Is(err, logtree.ErrNotFound) {
		return query.ErrNotFound
	}
	return err
}
