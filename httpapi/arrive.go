package httpapi

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/turns"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi/quota"
)

// Paths of the public address of an intake.
const (
	arrivalPath  = "/in/{id}"
	pageViewPath = arrivalPath + "/visitors/{visitorId}/activity"
)

const (
	maxArrival  = 1 << 20  // bytes of a post
	maxPageView = 64 << 10 // bytes
)

// arriving finds the intake that the path names. The proof of the post is verified later, when its body has been read.
//
// An intake that is not cached is looked up on the log. Ids that do not exist are looked up within a limit of the
// client's address; what cannot exist, or is known as deleted, is not looked up.
func arriving(ex *exchange) error {
	ex.record.credential = "intake"
	// A browser that posts a form shows the answer to a person, also when the intake is not found.
	ex.html = preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaHTML) == mediaHTML
	id := ex.pathParam("id")
	if !event.ValidID(id) || invented(id) || ex.Directory.IntakeGone(id) {
		return intake.ErrNotFound
	}
	if !ex.Directory.CachesIntake(id) {
		if err := ex.takeIntakeLookup(id); err != nil {
			return err
		}
	}
	found, err := ex.Directory.Intake(ex.ctx, id)
	if err != nil {
		return err
	}
	ex.intake = found
	ex.html = ex.html && found.State.Settings.Kind == intake.Form
	ex.identify(found.State.Account, "system:intake", "intake:"+id)
	return nil
}

// byIntake decides by the cached intake. An outcome that no append has confirmed is decided again if the intake has
// changed since it was cached: a rotated secret, a deleted intake and a removed origin are refused by every process at
// once. A wrong proof or origin is counted first: beyond the limit of the address, the error is a limitError, and the
// log is not read.
func (ex *exchange) byIntake(decide func() (confirmed bool, err error)) error {
	const attempts = 4
	for range attempts {
		confirmed, err := decide()
		if confirmed || !unconfirmed(err) {
			return err
		}
		if errors.Is(err, intake.ErrProof) || errors.Is(err, errOrigin) {
			if limited := ex.takeProof(); limited != nil {
				return limited
			}
		}
		latest, failed := ex.Directory.ConfirmIntake(ex.ctx, ex.intake.ID)
		if failed != nil {
			return failed
		}
		if latest == ex.intake {
			return err
		}
		ex.intake = latest
	}
	return eventstore.ErrContended
}

// unconfirmed reports whether an outcome depends on a cached intake.
func unconfirmed(err error) bool {
	_, wrong := errors.AsType[field.Errors](err)
	return err == nil || wrong || errors.Is(err, intake.ErrProof) || errors.Is(err, errOrigin) ||
		errors.Is(err, command.ErrIntakeChanged)
}

// acceptedArrival is the answer to a sender that is no form.
type acceptedArrival struct {
	Success   bool   `json:"success"`
	ArrivalID string `json:"arrivalId,omitzero"` // of the first arrival; absent: the post has none
}

// receiveArrival answers a post to an intake.
func (ex *exchange) receiveArrival() (answer, error) {
	if ex.intake.State.Settings.Kind == intake.Form {
		return ex.receiveForm()
	}
	return ex.receiveProven()
}

// arrivalAnswer is the answer to a sender, and counts a wrong proof.
func (ex *exchange) arrivalAnswer(received command.ArrivalReceived, err error) (answer, error) {
	if errors.Is(err, intake.ErrProof) {
		ex.metrics.arrivals.WithLabelValues(ex.intake.State.Settings.Kind, "unproven").Inc()
	}
	if err != nil {
		return answer{}, err
	}
	return answer{position: received.Position, body: acceptedArrival{Success: true, ArrivalID: received.ID}}, nil
}

// receiveProven receives a post with a proof. Its body is read once nothing in its headers is a reason to refuse it. A
// handshake has no proof.
func (ex *exchange) receiveProven() (answer, error) {
	if left := ex.senders.Left(ex.sender(), ex.senderLimit()); ex.senderLimit().Rate > 0 && !left.Allowed {
		return answer{}, ex.tooMany(left)
	}
	unproven := ex.byIntake(ex.checkHeaders)
	mayAsk := intake.HandshakeOf(ex.intake.State.Settings) == intake.HandshakeChallenge &&
		errors.Is(unproven, intake.ErrProof)
	if unproven != nil && !mayAsk {
		return ex.arrivalAnswer(command.ArrivalReceived{}, unproven)
	}
	body, err := ex.arrivalBody()
	if err != nil {
		return answer{}, err
	}
	if reply, asked := intake.AnswerBody(ex.intake.State.Settings, body); asked {
		return ex.handshakeAnswer(reply), nil
	}
	if unproven != nil {
		return ex.arrivalAnswer(command.ArrivalReceived{}, unproven)
	}
	return ex.arrivalAnswer(ex.receiveBody(ex.raw(), body))
}

// receiveBody receives what a request has as its body.
func (ex *exchange) receiveBody(raw event.ArrivalRaw, body []byte) (received command.ArrivalReceived, err error) {
	err = ex.byIntake(func() (bool, error) {
		received, err = ex.receive(raw, body)
		return err == nil, err
	})
	return received, err
}

// checkHeaders checks the proof in the headers of a post. If it depends on the body, the address must not have sent too
// many wrong ones. The errors are intake.ErrProof and a limitError.
func (ex *exchange) checkHeaders() (confirmed bool, err error) {
	proven, err := intake.VerifyHeaders(ex.intake.State.Settings, ex.intake.Secrets, ex.sent(), ex.Now())
	if err == nil && !proven {
		err = ex.proofsLeft()
	}
	return err == nil, err // an append confirms it
}

// receive verifies the proof of a post, and appends the arrival and its outcome.
func (ex *exchange) receive(raw event.ArrivalRaw, body []byte) (command.ArrivalReceived, error) {
	settings := ex.intake.State.Settings
	if err := intake.Verify(settings, ex.intake.Secrets, ex.sent(), body, ex.Now()); err != nil {
		return command.ArrivalReceived{}, err
	}
	if err := ex.takeArrival(); err != nil {
		return command.ArrivalReceived{}, err
	}
	ex.caller.IP, ex.caller.UserAgent = "", "" // of the sender's server
	if settings.Kind == intake.MetaLeadAds {
		return ex.receiveChanges(body)
	}
	elements, whole, err := ex.split(raw, body)
	if !whole {
		if err != nil {
			return command.ArrivalReceived{}, err
		}
		return ex.receiveElements(raw, elements)
	}
	notList := err
	raw, mapped, wrong, err := ex.mapped(raw, body)
	if err != nil {
		return command.ArrivalReceived{}, err
	}
	arrived := command.ReceiveArrival{
		DeliveryID: mapped.DeliveryID, Raw: raw, Mapped: ex.unlessPaused(command.MappedBy(mapped, wrong)),
	}
	if notList != nil {
		arrived.Mapped.Wrong.Add("each", notList.Error())
	}
	return ex.appendArrival(arrived)
}

// split returns the arrivals of a post that has several, found in a turn of the intake.
func (ex *exchange) split(raw event.ArrivalRaw, body []byte) (elements []intake.Element, whole bool, err error) {
	failed := ex.Commands.Turns().Do(ex.ctx, ex.caller.Account, ex.intake.ID, func() turns.Cost {
		elements, whole, err = ex.intake.Mapping.Split(intake.Request{
			ContentType: raw.ContentType, Body: body, Headers: raw.Headers, Query: raw.Query,
		})
		return turns.Cost{Bytes: len(body)}
	})
	if failed != nil {
		return nil, false, failed
	}
	return elements, whole, err
}

// receiveElements appends an arrival for each element of a post. The answer has the first; a post without any, such as
// one about the status of messages, leaves nothing.
func (ex *exchange) receiveElements(
	raw event.ArrivalRaw, elements []intake.Element,
) (first command.ArrivalReceived, err error) {
	post := make([]command.ReceiveArrival, len(elements))
	for i, element := range elements {
		own := raw
		own.ContentType, own.Item, own.Post = "application/json", true, string(element.Post)
		own, mapped, wrong, err := ex.mapped(own, element.Body)
		if err != nil {
			return first, err
		}
		post[i] = command.ReceiveArrival{
			DeliveryID: cmp.Or(mapped.DeliveryID, element.Of), Raw: own,
			Mapped: ex.unlessPaused(command.MappedBy(mapped, wrong)),
		}
	}
	return ex.appendPost(post)
}

// receiveChanges appends an arrival for each lead that a post of Meta announces, and for each change that cannot be
// read. The answer has the first.
func (ex *exchange) receiveChanges(body []byte) (first command.ArrivalReceived, err error) {
	changes, err := intake.Changes(body)
	if err != nil || len(changes) == 0 {
		var wrong field.Errors
		if err != nil {
			wrong.Add("body", err.Error())
		}
		return ex.appendArrival(command.ReceiveArrival{
			Raw: ex.raw().WithBody(body), Mapped: command.Mapped{Wrong: wrong, Skip: err == nil},
		})
	}
	if len(changes) > intake.MaxElements {
		return first, intake.ErrElements
	}
	post := make([]command.ReceiveArrival, len(changes))
	for i, change := range changes {
		announced := command.ReceiveArrival{
			DeliveryID: change.ID, Raw: ex.raw().WithBody(change.Body), Mapped: ex.unlessPaused(command.Mapped{}),
		}
		announced.Pending = change.Wrong == nil && announced.Mapped.Wrong == nil
		if change.Wrong != nil {
			announced.Mapped.Wrong.Add("body", change.Wrong.Error())
		}
		post[i] = announced
	}
	return ex.appendPost(post)
}

// appendArrival appends an arrival at the intake.
func (ex *exchange) appendArrival(cmd command.ReceiveArrival) (command.ArrivalReceived, error) {
	return ex.appendPost([]command.ReceiveArrival{cmd})
}

// appendPost appends all arrivals of a post at the intake, or none. The answer has the first, and the position of all.
func (ex *exchange) appendPost(post []command.ReceiveArrival) (first command.ArrivalReceived, err error) {
	if len(post) == 0 {
		return first, nil
	}
	settings := ex.intake.State.Settings
	for i := range post {
		cmd := &post[i]
		cmd.Caller, cmd.IntakeID, cmd.Intake, cmd.Source = ex.caller, ex.intake.ID, ex.intake.Check(), settings.Source
	}
	all, err := ex.Commands.ReceivePost(ex.ctx, post)
	if err != nil {
		return first, err
	}
	first = all[0]
	for _, received := range all {
		state := cmp.Or(received.State, "repeated")
		ex.metrics.arrivals.WithLabelValues(settings.Kind, state).Inc()
		first.Position = max(first.Position, received.Position)
	}
	ex.spendArrivals(len(post) - 1)
	return first, nil
}

// unlessPaused makes a paused intake quarantine what would be captured.
func (ex *exchange) unlessPaused(mapped command.Mapped) command.Mapped {
	mapped.Wrong = append(mapped.Wrong, ex.intake.State.Paused()...)
	return mapped
}

// mapped returns the post as it is kept, and its mapping, computed in a turn of the intake.
func (ex *exchange) mapped(
	raw event.ArrivalRaw, body []byte,
) (kept event.ArrivalRaw, mapped intake.Mapped, wrong field.Errors, err error) {
	region := account.DefaultRegion
	if ex.admission.Account != nil {
		region = ex.admission.Account.State.Region
	}
	err = ex.Commands.Turns().Do(ex.ctx, ex.caller.Account, ex.intake.ID, func() turns.Cost {
		mapped, wrong = ex.intake.Mapping.Map(intake.Request{
			ContentType: raw.ContentType, Body: body, Headers: raw.Headers, Query: raw.Query, Region: region,
			Item: raw.Item, Post: []byte(raw.Post),
		})
		if !mapped.Honeypot {
			kept = raw.WithBody(intake.WithoutFiles(raw.ContentType, intake.Masked(ex.intake.State.Settings.Kind, body)))
		}
		return turns.Cost{Bytes: len(body), Steps: mapped.Steps}
	})
	return kept, mapped, wrong, err
}

// raw is the post without its body, proofs and credentials.
func (ex *exchange) raw() event.ArrivalRaw {
	raw := event.ArrivalRaw{
		ContentType: strings.ToValidUTF8(ex.r.Header.Get("Content-Type"), ""),
		Headers:     intake.VisibleHeaders(ex.intake.State.Settings, ex.r.Header),
	}
	query := intake.VisibleQuery(ex.intake.State.Settings, ex.r.URL.RawQuery, intake.FromBrowser(raw.Headers))
	if len(query) > 0 {
		raw.Query = query
	}
	return raw
}

// sent reads where a request may have proofs.
func (ex *exchange) sent() intake.Sent {
	return intake.Sent{Header: ex.r.Header.Get, Query: ex.r.URL.Query().Get}
}

// arrivalBody reads the body of a post.
func (ex *exchange) arrivalBody() ([]byte, error) {
	if encoded(ex.r.Header) {
		return nil, errCoding
	}
	body, err := ex.readBodyUpTo(maxArrival, errArrivalLarge)
	if err == nil {
		ex.bodyRead()
	}
	return body, err
}

// sender is the key of the quota of one address at the intake: one for posts, and one for page views.
func (ex *exchange) sender() string {
	return ex.kind.Policy() + " " + ex.intake.ID + " " + ex.address()
}

// senderLimit limits the requests of one address to the intake, with bursts of one second. It is derived from the
// intake's own limit or, without one and for page views, from the account's. The zero Limit is none.
func (ex *exchange) senderLimit() quota.Limit {
	own := ex.intake.State.Settings.RateLimit
	if own == nil || ex.kind == quota.PageView {
		return ex.limit().Limit
	}
	return quota.LimitOf(own, new(int(min(math.Ceil(*own), math.MaxInt32))), 0, 0)
}

// addressShare is the ratio of the limit of an intake to the limit of one address.
const addressShare = 4

// atForm reports whether the request is one to a form, at which anyone may post.
func (ex *exchange) atForm() bool {
	return ex.intake != nil && ex.intake.State.Settings.Kind == intake.Form
}

// senderMeters returns the buckets that the bytes of one address at a form count against: a part of the account's
// buckets.
func (ex *exchange) senderMeters() (all []meter) {
	if !ex.atForm() {
		return nil
	}
	for _, m := range ex.meters() {
		if m.holder == ex.caller.Account { // the part of its forms is smaller
			continue
		}
		m.holder = ex.sender()
		m.limit = quota.Limit{Rate: m.limit.Rate / addressShare, Burst: max(1, m.limit.Burst/addressShare)}
		all = append(all, m)
	}
	return all
}

// takeSender takes a token from the quota of the client's address at the intake. The error is a limitError or a
// storageError.
func (ex *exchange) takeSender() error {
	for _, m := range ex.senderMeters() {
		if left := ex.senders.Left(m.key(), m.limit); !left.Allowed {
			ex.metrics.limited.WithLabelValues(senderLimit).Inc()
			return m.refusal(left)
		}
	}
	if limit := ex.senderLimit(); limit.Rate > 0 {
		if used := ex.senders.Take(ex.sender(), limit); !used.Allowed {
			return ex.tooMany(used)
		}
	}
	return nil
}

func (ex *exchange) tooMany(used quota.Use) error {
	ex.metrics.limited.WithLabelValues(senderLimit).Inc()
	return limitError{used.RetryAfter}
}

// takeArrival counts a post, once, whose sender has proved itself: against the quota of its address and that of the
// intake.
func (ex *exchange) takeArrival() error {
	if ex.counted {
		return nil
	}
	ex.counted = true
	if err := ex.takeSender(); err != nil {
		return err
	}
	return ex.take()
}

// spendArrivals counts further arrivals of a post that was let in against the quota of the intake, into debt if
// necessary.
func (ex *exchange) spendArrivals(n int) {
	if limit := ex.arrivalLimit(ex.limit()); n > 0 && limit.Rate > 0 {
		ex.quotas.Spend(ex.kind.Policy()+" "+ex.quotaHolder(), limit.Limit, n)
	}
}

// quotaHolder is the key of a request's quotas: its account or, so that junk at one intake uses up nothing else, its
// intake.
func (ex *exchange) quotaHolder() string {
	if ex.intake != nil {
		return ex.caller.Account + "/" + ex.intake.ID
	}
	return ex.caller.Account
}

// arrivalLimit is the limit of all posts to the intake together: the account's, or a multiple of that of one address if
// that is larger.
func (ex *exchange) arrivalLimit(limit accountLimit) accountLimit {
	sender := ex.senderLimit()
	if limit.Rate == 0 || sender.Rate == 0 {
		return accountLimit{}
	}
	all := sender.Times(addressShare)
	return accountLimit{quota.Limit{Rate: max(limit.Rate, all.Rate), Burst: max(limit.Burst, all.Burst)}}
}

// receiveGet answers a handshake or, at an intake that accepts GET, receives the query as a post.
func (ex *exchange) receiveGet() (answer, error) {
	settings := ex.intake.State.Settings
	handshake := intake.HandshakeOf(settings)
	if handshake != intake.HandshakeNone {
		answer, err := ex.answerHandshake()
		if !settings.AcceptGet || !errors.Is(err, intake.ErrHandshake) {
			return answer, err
		}
	}
	if !settings.AcceptGet || ex.r.Method != http.MethodGet {
		ex.w.Header().Set("Allow", http.MethodPost)
		return answer{}, errWrongMethod
	}
	if err := ex.byIntake(ex.checkHeaders); err != nil {
		return answer{}, err
	}
	raw := ex.raw()
	raw.ContentType = "application/x-www-form-urlencoded"
	query := make(url.Values, len(raw.Query))
	for name, value := range raw.Query {
		query.Set(name, value)
	}
	body := strings.ReplaceAll(query.Encode(), "+", "%20") // a plus would be one that a phone has lost
	return ex.arrivalAnswer(ex.receiveBody(raw, []byte(body)))
}

// answerHandshake answers a sender that asks whether the address is its customer's. Nothing is appended, so the
// intake's secrets are read from the log.
func (ex *exchange) answerHandshake() (answer, error) {
	if err := ex.proofsLeft(); err != nil {
		return answer{}, err
	}
	latest, err := ex.Directory.ConfirmIntake(ex.ctx, ex.intake.ID)
	if err != nil {
		return answer{}, err
	}
	p := ex.params()
	reply, err := intake.AnswerQuery(latest.State.Settings, latest.Secrets, p.text, ex.Now())
	if p.wrong != nil {
		return answer{}, p.wrong
	}
	if errors.Is(err, intake.ErrVerifyToken) {
		if limited := ex.takeProof(); limited != nil {
			return answer{}, limited
		}
	}
	return ex.handshakeAnswer(reply), err
}

func (ex *exchange) handshakeAnswer(reply intake.Reply) answer {
	return answer{stream: func() error {
		ex.w.Header().Set("Content-Type", reply.ContentType)
		_, err := ex.w.Write(reply.Body)
		return err
	}}
}

// recordPageView records an activity of a visitor of a page with leadlog.js. A page must not have a credential, so it
// sends views to the intake of its forms.
func (ex *exchange) recordPageView() (answer, error) {
	if ex.intake.State.Settings.Kind != intake.Form {
		return answer{}, intake.ErrNotFound
	}
	if err := ex.byIntake(ex.checkOrigin); err != nil {
		return answer{}, err
	}
	body, err := ex.membersUpTo(maxPageView, errViewLarge)
	if err != nil {
		return answer{}, err
	}
	ex.caller.IP, ex.caller.UserAgent = "", ""
	return answer{status: http.StatusAccepted, body: envelope{Success: true}}, ex.byIntake(func() (bool, error) {
		if _, err := ex.checkOrigin(); err != nil {
			return false, err
		}
		_, err := ex.Commands.RecordActivity(ex.ctx, command.RecordActivity{
			Admission: command.Admission{Caller: ex.caller, Account: ex.admission.Account}.ByIntake(ex.intake),
			VisitorID: ex.pathParam("visitorId"), Body: body,
		})
		return err == nil, err
	})
}

// checkOrigin checks that a page may post to the intake, and lets that page read the answer. The error is errOrigin.
func (ex *exchange) checkOrigin() (confirmed bool, err error) {
	listed := ex.intake.State.Settings.Origins
	if len(listed) == 0 {
		return true, nil // an append confirms it
	}
	origin, header := ex.r.Header.Get("Origin"), ex.w.Header()
	if !slices.Contains(listed, origin) {
		header.Del("Access-Control-Allow-Origin") // set by a cached intake
		return false, errOrigin
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Vary", "Origin")
	header.Set("Access-Control-Expose-Headers", requestIDHeader+", Retry-After")
	return true, nil
}

// answerPreflight lets pages of the intake's origins post to it. Any other gets no such headers.
func (ex *exchange) answerPreflight() (answer, error) {
	requested := ex.r.Header
	settings := ex.intake.State.Settings
	err := ex.byIntake(ex.checkOrigin)
	if settings.Kind != intake.Form || len(settings.Origins) == 0 || errors.Is(err, errOrigin) ||
		requested.Get("Access-Control-Request-Method") != http.MethodPost {
		ex.w.Header().Set("Allow", http.MethodPost)
		return answer{}, errWrongMethod
	}
	if err != nil {
		return answer{}, err
	}
	header := ex.w.Header()
	header.Del("Access-Control-Expose-Headers")
	header.Set("Access-Control-Allow-Methods", http.MethodPost)
	header.Set("Access-Control-Allow-Headers", "Content-Type, "+idempotencyHeader+", "+requestIDHeader)
	header.Set("Access-Control-Max-Age", "600") // seconds
	return answer{stream: func() error { ex.w.WriteHeader(http.StatusNoContent); return nil }}, nil
}
