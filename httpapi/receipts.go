package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query/logtree"
)

var (
	errNoEvent   = errors.New("no such event")
	errNotErased = errors.New("the lead was not erased")
	// errUnfinished means that something is left of an erasure, such as after the restore of a backup of the keys.
	errUnfinished = errors.New("the erasure is not finished")
)

// verifying requires an API token, or a JWT with leads:read. A token gets receipts of its own captures only.
func verifying(x *exchange) error {
	credential, err := x.bearer()
	if err != nil {
		return err
	}
	if !token.LooksLikeValue(credential) {
		return scoped("leads:read")(x)
	}
	if err := x.byToken(credential); err != nil {
		return err
	}
	return x.admission.Confirm(x.ctx, x.Directory) // no append does
}

// provenEvent returns the event in the path, in stored form.
func (x *exchange) provenEvent() (eventstore.Recorded, error) {
	leadID, err := x.ulidID(errNoEvent)
	if err != nil {
		return eventstore.Recorded{}, err
	}
	eventID := x.pathParam("eventId")
	found, err := x.LogTree.LeadEvent(x.ctx, x.caller.Account, leadID, func(e eventstore.Recorded) bool {
		return e.ID.String() == eventID
	})
	if err == nil && x.byAPIToken() && found.Metadata.Credential != x.caller.Credential {
		err = logtree.ErrNotFound
	}
	return found, missingEvent(err, errNoEvent)
}

func (x *exchange) byAPIToken() bool { return strings.HasPrefix(x.caller.Credential, "token:") }

// showEvidence answers with the content of an event of a lead and the proof that the log has it. A page in a browser
// gets none by an API token, because it has stored data.
func (x *exchange) showEvidence() (answer, error) {
	stored, err := x.provenEvent()
	if err == nil && x.byAPIToken() && x.caller.FromPage {
		err = errNoEvent
	}
	if err != nil {
		return answer{}, err
	}
	x.w.Header().Set("Cache-Control", "no-store")
	return found(x.LogTree.Evidence(x.ctx, stored))
}

// showReceipt answers with the proof that an event of a lead is on the log, also when the lead was erased since: a
// proof has no personal data.
func (x *exchange) showReceipt() (answer, error) {
	found, err := x.provenEvent()
	if err != nil {
		return answer{}, err
	}
	receipt, err := x.LogTree.Receipt(x.ctx, found.Position)
	return answer{stream: func() error {
		x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		x.w.Header().Set("Cache-Control", "no-store") // a later one has a newer checkpoint
		x.w.WriteHeader(http.StatusOK)
		_, err := x.w.Write(receipt)
		return err
	}}, err
}

// certifying requires a JWT that may erase leads or read the audit trail.
func certifying(x *exchange) error {
	if err := scoped()(x); err != nil {
		return err
	}
	if !slices.ContainsFunc([]string{"leads:write", "audit:read"}, x.jwt.May) {
		return scopeError("leads:write or audit:read")
	}
	return nil
}

// showCertificate answers with the certificate of an erasure that is finished.
func (x *exchange) showCertificate() (answer, error) {
	leadID, err := x.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	erased, err := x.LogTree.Erasure(x.ctx, x.caller.Account, leadID)
	if err != nil {
		return answer{}, missingEvent(err, errNotErased)
	}
	fact, err := erased.Fact()
	if err != nil {
		return answer{}, err
	}
	if err := x.Eraser.Views.Await(x.ctx, erased.Position); err != nil { // the fan-out queues it for endpoints
		return answer{}, err
	}
	done, _ := fact.Data.(event.LeadErased)
	left, err := x.Eraser.Unfinished(x.ctx, x.caller.Account, append([]string{leadID}, done.Leads...), done.Origins,
		done.Visitors, erased.Position)
	if err == nil && left {
		err = errUnfinished
	}
	if err != nil {
		return answer{}, err
	}
	return found(x.LogTree.Certificate(x.ctx, erased, x.Now()))
}

func missingEvent(err, is error) error {
	if errors.Is(err, logtree.ErrNotFound) {
		return is
	}
	return err
}
