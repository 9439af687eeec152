package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

// identityPage has the settings by which contacts identify persons, and whether leads are masked, stored or as posted.
type identityPage struct {
	IgnoredContacts string // one per line
	SharedAfter     string
	Unmasked        bool
	Wrong           field.Errors
	Preview         *identityPreview // nil: none was asked for
	Retention       retentionShown
}

// identityPreview is what posted settings would change.
type identityPreview struct {
	Entries     []entryPreview
	Uncounted   int // entries beyond those
	SharedAfter int // 0: contacts are never shared
	Several     leadCount
	Counts      bool // the user may see how many leads there are
}

// entryPreview is an ignored contact, and the leads that have it.
type entryPreview struct {
	Entry  string
	Change string // added, removed or kept
	Leads  leadCount
}

// leadCount is a number of leads.
type leadCount struct {
	Number int
	More   bool // there may be more
}

const (
	mostCounted = 20  // entries of a preview
	countedPage = 200 // leads of an entry
)

func (v *visit) settingsPage() (screen, error) {
	stored, err := v.Directory.ConfirmAccount(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	after := event.DefaultSharedAfter
	if stored.State.Provisioned {
		after = stored.State.SharedAfter
	}
	return v.identityScreen(identityPage{
		IgnoredContacts: strings.Join(stored.State.IgnoredContacts, "\n"), SharedAfter: strconv.Itoa(after),
		Unmasked: stored.State.UnmaskedInConsole,
	})
}

func (v *visit) identityScreen(shown identityPage) (_ screen, err error) {
	if shown.Retention, err = v.retention(); err != nil {
		return screen{}, err
	}
	page := screen{name: "settings", title: "Settings", data: shown}
	if shown.Wrong != nil {
		page.status = http.StatusBadRequest
	}
	if v.reads() {
		page.calls = v.calls(
			v.get(adminScope, "All settings of this account", "/api/v1/admin/accounts/"+v.identity.Account),
		)
	}
	return page, nil
}

// identityForm reads the settings of the form.
func (v *visit) identityForm() (shown identityPage, want account.Settings, err error) {
	form, err := v.form()
	if err != nil {
		return shown, want, err
	}
	shown = identityPage{
		IgnoredContacts: form.Get("ignoredContacts"), SharedAfter: strings.TrimSpace(form.Get("sharedAfter")),
	}
	want.IgnoredContacts = []string{}
	for line := range strings.Lines(shown.IgnoredContacts) {
		if line = strings.TrimSpace(line); line != "" {
			want.IgnoredContacts = append(want.IgnoredContacts, line)
		}
	}
	after, err := strconv.Atoi(shown.SharedAfter)
	if err != nil {
		after = -1 // which is refused
	}
	want.SharedAfter = &after
	if mask := form.Get("maskInConsole"); mask != "" {
		shown.Unmasked = mask == "false"
		want.MaskInConsole = new(!shown.Unmasked)
	}
	return shown, want, nil
}

func (v *visit) changeSettings() (screen, error) {
	shown, want, err := v.identityForm()
	if err != nil {
		return screen{}, err
	}
	_, position, err := v.Commands.ConfigureAccount(v.ctx, command.ConfigureAccount{
		Caller: v.caller, AccountID: v.identity.Account, Settings: want, Patch: true,
	})
	if faults, ok := wrong(err); ok {
		shown.Wrong = faults
		return v.identityScreen(shown)
	}
	if err != nil {
		return screen{}, err
	}
	v.waitForViews(position, query.AccountView)
	return screen{redirect: v.path("/settings")}, nil
}

// previewSettings shows what the posted settings would change.
func (v *visit) previewSettings() (screen, error) {
	shown, want, err := v.identityForm()
	if err != nil {
		return screen{}, err
	}
	stored, err := v.Directory.ConfirmAccount(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	before := stored.State
	configured, err := before.Configure(before.Patched(want), contact.KnownRegion)
	if faults, ok := wrong(err); ok {
		shown.Wrong = faults
		return v.identityScreen(shown)
	}
	if err != nil {
		return screen{}, err
	}
	after := before
	if configured != nil {
		after.IgnoredContacts, after.SharedAfter = configured.IgnoredContacts, configured.SharedAfterOrDefault()
	}
	if shown.Preview, err = v.previewIdentity(before, after); err != nil {
		return screen{}, err
	}
	return v.identityScreen(shown)
}

func (v *visit) previewIdentity(before, after account.State) (*identityPreview, error) {
	preview := &identityPreview{
		SharedAfter: after.SharedAfter, Counts: v.identity.May("leads:read"), Entries: entryChanges(before, after),
	}
	if len(preview.Entries) > mostCounted {
		preview.Entries, preview.Uncounted = preview.Entries[:mostCounted], len(preview.Entries)-mostCounted
	}
	if !preview.Counts {
		return preview, nil
	}
	if len(preview.Entries) > 0 {
		v.Commands.Search(v.ctx, v.caller, "leads", "email", "phone") // the counts say whether there is such a person
	}
	for i := range preview.Entries {
		one := &preview.Entries[i]
		var err error
		if one.Leads, err = v.leadsWith(one.Entry); err != nil {
			return nil, err
		}
	}
	var err error
	preview.Several, err = v.countLeads(query.LeadFilter{Contacts: after.SeveralPersons()},
		func(query.Lead) bool { return true })
	return preview, err
}

// entryChanges are the entries of both lists: added ones, removed ones and those that stay.
func entryChanges(before, after account.State) (added []entryPreview) {
	var removed, kept []entryPreview
	for _, entry := range after.IgnoredContacts {
		if slices.Contains(before.IgnoredContacts, entry) {
			kept = append(kept, entryPreview{Entry: entry, Change: "kept"})
		} else {
			added = append(added, entryPreview{Entry: entry, Change: "added"})
		}
	}
	for _, entry := range before.IgnoredContacts {
		if !slices.Contains(after.IgnoredContacts, entry) {
			removed = append(removed, entryPreview{Entry: entry, Change: "removed"})
		}
	}
	return slices.Concat(added, removed, kept)
}

// leadsWith counts the leads that an entry finds, or of *@domain and local@* those whose current email it is.
func (v *visit) leadsWith(entry string) (leadCount, error) {
	every := func(query.Lead) bool { return true }
	part := strings.Trim(entry, "*")
	switch {
	case part != entry:
		return v.countLeads(query.LeadFilter{Q: part}, func(l query.Lead) bool {
			return contact.Ignored{entry}.HasEmail(l.Email)
		})
	case strings.Contains(entry, "@"):
		return v.countLeads(query.LeadFilter{Email: entry}, every)
	case strings.HasPrefix(entry, "+"):
		return v.countLeads(query.LeadFilter{Phone: entry}, every)
	}
	return leadCount{}, nil // digits that are no phone of a lead
}

func (v *visit) countLeads(filter query.LeadFilter, counts func(query.Lead) bool) (n leadCount, err error) {
	list, err := v.Query.Leads(v.ctx, v.identity.Account, filter, query.Page{Limit: countedPage})
	for _, one := range list.Items {
		if counts(one) {
			n.Number++
		}
	}
	n.More = list.NextCursor != ""
	return n, err
}
