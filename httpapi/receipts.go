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
func verifying(ex *exchange) error {
	credential, err := ex.bearer()
	if err != nil {
		return err
	}
	if !token.LooksLikeValue(credential) {
		return scoped("leads:read")(ex)
	}
	if err := ex.byToken(credential); err != nil {
		return err
	}
	return ex.admission.Confirm(ex.ctx, ex.Directory) // no append does
}

// provenEvent returns the event in the path, in stored form.
func (ex *exchange) provenEvent() (eventstore.Recorded, error) {
	leadID, err := ex.ulidID(errNoEvent)
	if err != nil {
		return eventstore.Recorded{}, err
	}
	eventID := ex.pathParam("eventId")
	found, err := ex.LogTree.LeadEvent(ex.ctx, ex.caller.Account, leadID, func(e eventstore.Recorded) bool {
		return e.ID.String() == eventID
	})
	if err == nil && ex.byAPIToken() && found.Metadata.Credential != ex.caller.Credential {
		err = logtree.ErrNotFound
	}
	return found, missingEvent(err, errNoEvent)
}

func (ex *exchange) byAPIToken() bool { return strings.HasPrefix(ex.caller.Credential, "token:") }

// showEvidence answers with the content of an event of a lead and the proof that the log has it. A page in a browser
// gets none by an API token, because it has stored data.
func (ex *exchange) showEvidence() (answer, error) {
	stored, err := ex.provenEvent()
	if err == nil && ex.byAPIToken() && ex.caller.FromPage {
		err = errNoEvent
	}
	if err != nil {
		return answer{}, err
	}
	ex.w.Header().Set("Cache-Control", "no-store")
	return found(ex.LogTree.Evidence(ex.ctx, stored))
}

// showReceipt answers with the proof that an event of a lead is on the log, also when the lead was erased since: a
// proof has no personal data.
func (ex *exchange) showReceipt() (answer, error) {
	found, err := ex.provenEvent()
	if err != nil {
		return answer{}, err
	}
	receipt, err := ex.LogTree.Receipt(ex.ctx, found.Position)
	return answer{stream: func() error {
		ex.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		ex.w.Header().Set("Cache-Control", "no-store") // a later one has a newer checkpoint
		ex.w.WriteHeader(http.StatusOK)
		_, err := ex.w.Write(receipt)
		return err
	}}, err
}

// certifying requires a JWT that may erase leads or read the audit trail.
func certifying(ex *exchange) error {
	if err := scoped()(ex); err != nil {
		return err
	}
	if !slices.ContainsFunc([]string{"leads:write", "audit:read"}, ex.jwt.May) {
		return scopeError("leads:write or audit:read")
	}
	return nil
}

// showCertificate answers with the certificate of an erasure that is finished.
func (ex *exchange) showCertificate() (answer, error) {
	leadID, err := ex.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	erased, err := ex.LogTree.Erasure(ex.ctx, ex.caller.Account, leadID)
	if err != nil {
		return answer{}, missingEvent(err, errNotErased)
	}
	fact, err := erased.Fact()
	if err != nil {
		return answer{}, err
	}
	if err := ex.Eraser.Views.Await(ex.ctx, erased.Position); err != nil { // the fan-out queues it for endpoints
		return answer{}, err
	}
	done, _ := fact.Data.(event.LeadErased)
	left, err := ex.Eraser.Unfinished(ex.ctx, ex.caller.Account, append([]string{leadID}, done.Leads...), done.Origins,
		done.Visitors, erased.Position)
	if err == nil && left {
		err = errUnfinished
	}
	if err != nil {
		return answer{}, err
	}
	return found(ex.LogTree.Certificate(ex.ctx, erased, ex.Now()))
}

func missingEvent(err, is error) error {
	if errors.Is(err, logtree.ErrNotFound) {
		return is
	}
	return err
}
