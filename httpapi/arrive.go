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
func arriving(x *exchange) error {
	x.record.credential = "intake"
	// A browser that posts a form shows the answer to a person, also when the intake is not found.
	x.html = preferred(x.r.Header.Values("Accept"), mediaJSON, mediaHTML) == mediaHTML
	id := x.pathParam("id")
	if !event.ValidID(id) || invented(id) || x.Directory.IntakeGone(id) {
		return intake.ErrNotFound
	}
	if !x.Directory.CachesIntake(id) {
		if err := x.takeIntakeLookup(id); err != nil {
			return err
		}
	}
	found, err := x.Directory.Intake(x.ctx, id)
	if err != nil {
		return err
	}
	x.intake = found
	x.html = x.html && found.State.Settings.Kind == intake.Form
	x.identify(found.State.Account, "system:intake", "intake:"+id)
	return nil
}

// byIntake decides by the cached intake. An outcome that no append has confirmed is decided again if the intake has
// changed since it was cached: a rotated secret, a deleted intake and a removed origin are refused by every process at
// once. A wrong proof or origin is counted first: beyond the limit of the address, the error is a limitError, and the
// log is not read.
func (x *exchange) byIntake(decide func() (confirmed bool, err error)) error {
	const attempts = 4
	for range attempts {
		confirmed, err := decide()
		if confirmed || !unconfirmed(err) {
			return err
		}
		if errors.Is(err, intake.ErrProof) || errors.Is(err, errOrigin) {
			if limited := x.takeProof(); limited != nil {
				return limited
			}
		}
		latest, failed := x.Directory.ConfirmIntake(x.ctx, x.intake.ID)
		if failed != nil {
			return failed
		}
		if latest == x.intake {
			return err
		}
		x.intake = latest
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
func (x *exchange) receiveArrival() (answer, error) {
	if x.intake.State.Settings.Kind == intake.Form {
		return x.receiveForm()
	}
	return x.receiveProven()
}

// arrivalAnswer is the answer to a sender, and counts a wrong proof.
func (x *exchange) arrivalAnswer(received command.ArrivalReceived, err error) (answer, error) {
	if errors.Is(err, intake.ErrProof) {
		x.metrics.arrivals.WithLabelValues(x.intake.State.Settings.Kind, "unproven").Inc()
	}
	if err != nil {
		return answer{}, err
	}
	return answer{position: received.Position, body: acceptedArrival{Success: true, ArrivalID: received.ID}}, nil
}

// receiveProven receives a post with a proof. Its body is read once nothing in its headers is a reason to refuse it. A
// handshake has no proof.
func (x *exchange) receiveProven() (answer, error) {
	if left := x.senders.Left(x.sender(), x.senderLimit()); x.senderLimit().Rate > 0 && !left.Allowed {
		return answer{}, x.tooMany(left)
	}
	unproven := x.byIntake(x.checkHeaders)
	mayAsk := intake.HandshakeOf(x.intake.State.Settings) == intake.HandshakeChallenge &&
		errors.Is(unproven, intake.ErrProof)
	if unproven != nil && !mayAsk {
		return x.arrivalAnswer(command.ArrivalReceived{}, unproven)
	}
	body, err := x.arrivalBody()
	if err != nil {
		return answer{}, err
	}
	if reply, asked := intake.AnswerBody(x.intake.State.Settings, body); asked {
		return x.handshakeAnswer(reply), nil
	}
	if unproven != nil {
		return x.arrivalAnswer(command.ArrivalReceived{}, unproven)
	}
	return x.arrivalAnswer(x.receiveBody(x.raw(), body))
}

// receiveBody receives what a request has as its body.
func (x *exchange) receiveBody(raw event.ArrivalRaw, body []byte) (received command.ArrivalReceived, err error) {
	err = x.byIntake(func() (bool, error) {
		received, err = x.receive(raw, body)
		return err == nil, err
	})
	return received, err
}

// checkHeaders checks the proof in the headers of a post. If it depends on the body, the address must not have sent too
// many wrong ones. The errors are intake.ErrProof and a limitError.
func (x *exchange) checkHeaders() (confirmed bool, err error) {
	proven, err := intake.VerifyHeaders(x.intake.State.Settings, x.intake.Secrets, x.sent(), x.Now())
	if err == nil && !proven {
		err = x.proofsLeft()
	}
	return err == nil, err // an append confirms it
}

// receive verifies the proof of a post, and appends the arrival and its outcome.
func (x *exchange) receive(raw event.ArrivalRaw, body []byte) (command.ArrivalReceived, error) {
	settings := x.intake.State.Settings
	if err := intake.Verify(settings, x.intake.Secrets, x.sent(), body, x.Now()); err != nil {
		return command.ArrivalReceived{}, err
	}
	if err := x.takeArrival(); err != nil {
		return command.ArrivalReceived{}, err
	}
	x.caller.IP, x.caller.UserAgent = "", "" // of the sender's server
	if settings.Kind == intake.MetaLeadAds {
		return x.receiveChanges(body)
	}
	elements, whole, err := x.split(raw, body)
	if !whole {
		if err != nil {
			return command.ArrivalReceived{}, err
		}
		return x.receiveElements(raw, elements)
	}
	notList := err
	raw, mapped, wrong, err := x.mapped(raw, body)
	if err != nil {
		return command.ArrivalReceived{}, err
	}
	arrived := command.ReceiveArrival{
		DeliveryID: mapped.DeliveryID, Raw: raw, Mapped: x.unlessPaused(command.MappedBy(mapped, wrong)),
	}
	if notList != nil {
		arrived.Mapped.Wrong.Add("each", notList.Error())
	}
	return x.keep(arrived)
}

// split returns the arrivals of a post that has several, found in a turn of the intake.
func (x *exchange) split(raw event.ArrivalRaw, body []byte) (elements []intake.Element, whole bool, err error) {
	failed := x.Commands.Turns().Do(x.ctx, x.caller.Account, x.intake.ID, func() turns.Cost {
		elements, whole, err = x.intake.Mapping.Split(intake.Request{
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
func (x *exchange) receiveElements(
	raw event.ArrivalRaw, elements []intake.Element,
) (first command.ArrivalReceived, err error) {
	post := make([]command.ReceiveArrival, len(elements))
	for i, element := range elements {
		own := raw
		own.ContentType, own.Item, own.Post = "application/json", true, string(element.Post)
		own, mapped, wrong, err := x.mapped(own, element.Body)
		if err != nil {
			return first, err
		}
		post[i] = command.ReceiveArrival{
			DeliveryID: cmp.Or(mapped.DeliveryID, element.Of), Raw: own,
			Mapped: x.unlessPaused(command.MappedBy(mapped, wrong)),
		}
	}
	return x.keepPost(post)
}

// receiveChanges appends an arrival for each lead that a post of Meta announces, and for each change that cannot be
// read. The answer has the first.
func (x *exchange) receiveChanges(body []byte) (first command.ArrivalReceived, err error) {
	changes, err := intake.Changes(body)
	if err != nil || len(changes) == 0 {
		var wrong field.Errors
		if err != nil {
			wrong.Add("body", err.Error())
		}
		return x.keep(command.ReceiveArrival{
			Raw: x.raw().WithBody(body), Mapped: command.Mapped{Wrong: wrong, Skip: err == nil},
		})
	}
	if len(changes) > intake.MaxElements {
		return first, intake.ErrElements
	}
	post := make([]command.ReceiveArrival, len(changes))
	for i, change := range changes {
		announced := command.ReceiveArrival{
			DeliveryID: change.ID, Raw: x.raw().WithBody(change.Body), Mapped: x.unlessPaused(command.Mapped{}),
		}
		announced.Pending = change.Wrong == nil && announced.Mapped.Wrong == nil
		if change.Wrong != nil {
			announced.Mapped.Wrong.Add("body", change.Wrong.Error())
		}
		post[i] = announced
	}
	return x.keepPost(post)
}

// keep appends an arrival at the intake.
func (x *exchange) keep(cmd command.ReceiveArrival) (command.ArrivalReceived, error) {
	return x.keepPost([]command.ReceiveArrival{cmd})
}

// keepPost appends all arrivals of a post at the intake, or none. The answer has the first, and the position of all.
func (x *exchange) keepPost(post []command.ReceiveArrival) (first command.ArrivalReceived, err error) {
	if len(post) == 0 {
		return first, nil
	}
	settings := x.intake.State.Settings
	for i := range post {
		cmd := &post[i]
		cmd.Caller, cmd.IntakeID, cmd.Intake, cmd.Source = x.caller, x.intake.ID, x.intake.Check(), settings.Source
	}
	all, err := x.Commands.ReceivePost(x.ctx, post)
	if err != nil {
		return first, err
	}
	first = all[0]
	for _, received := range all {
		state := cmp.Or(received.State, "repeated")
		x.metrics.arrivals.WithLabelValues(settings.Kind, state).Inc()
		first.Position = max(first.Position, received.Position)
	}
	x.spendArrivals(len(post) - 1)
	return first, nil
}

// unlessPaused makes a paused intake quarantine what would be captured.
func (x *exchange) unlessPaused(mapped command.Mapped) command.Mapped {
	mapped.Wrong = append(mapped.Wrong, x.intake.State.Paused()...)
	return mapped
}

// mapped returns the post as it is kept, and its mapping, computed in a turn of the intake.
func (x *exchange) mapped(
	raw event.ArrivalRaw, body []byte,
) (kept event.ArrivalRaw, mapped intake.Mapped, wrong field.Errors, err error) {
	region := account.DefaultRegion
	if x.admission.Account != nil {
		region = x.admission.Account.State.Region
	}
	err = x.Commands.Turns().Do(x.ctx, x.caller.Account, x.intake.ID, func() turns.Cost {
		mapped, wrong = x.intake.Mapping.Map(intake.Request{
			ContentType: raw.ContentType, Body: body, Headers: raw.Headers, Query: raw.Query, Region: region,
			Item: raw.Item, Post: []byte(raw.Post),
		})
		if !mapped.Honeypot {
			kept = raw.WithBody(intake.WithoutFiles(raw.ContentType, intake.Masked(x.intake.State.Settings.Kind, body)))
		}
		return turns.Cost{Bytes: len(body), Steps: mapped.Steps}
	})
	return kept, mapped, wrong, err
}

// raw is the post without its body, proofs and credentials.
func (x *exchange) raw() event.ArrivalRaw {
	raw := event.ArrivalRaw{
		ContentType: strings.ToValidUTF8(x.r.Header.Get("Content-Type"), ""),
		Headers:     intake.VisibleHeaders(x.intake.State.Settings, x.r.Header),
	}
	query := intake.VisibleQuery(x.intake.State.Settings, x.r.URL.RawQuery, intake.FromBrowser(raw.Headers))
	if len(query) > 0 {
		raw.Query = query
	}
	return raw
}

// sent reads where a request may have proofs.
func (x *exchange) sent() intake.Sent {
	return intake.Sent{Header: x.r.Header.Get, Query: x.r.URL.Query().Get}
}

// arrivalBody reads the body of a post.
func (x *exchange) arrivalBody() ([]byte, error) {
	if encoded(x.r.Header) {
		return nil, errCoding
	}
	body, err := x.readBodyUpTo(maxArrival, errArrivalLarge)
	if err == nil {
		x.bodyRead()
	}
	return body, err
}

// sender is the key of the quota of one address at the intake: one for posts, and one for page views.
func (x *exchange) sender() string {
	return x.kind.Policy() + " " + x.intake.ID + " " + x.address()
}

// senderLimit limits the requests of one address to the intake, with bursts of one second. It is derived from the
// intake's own limit or, without one and for page views, from the account's. The zero Limit is none.
func (x *exchange) senderLimit() quota.Limit {
	own := x.intake.State.Settings.RateLimit
	if own == nil || x.kind == quota.PageView {
		return x.limit().Limit
	}
	return quota.LimitOf(own, new(int(min(math.Ceil(*own), math.MaxInt32))), 0, 0)
}

// addressShare is the ratio of the limit of an intake to the limit of one address.
const addressShare = 4

// atForm reports whether the request is one to a form, at which anyone may post.
func (x *exchange) atForm() bool {
	return x.intake != nil && x.intake.State.Settings.Kind == intake.Form
}

// senderMeters returns the buckets that the bytes of one address at a form count against: a part of the account's
// buckets.
func (x *exchange) senderMeters() (all []meter) {
	if !x.atForm() {
		return nil
	}
	for _, m := range x.meters() {
		if m.holder == x.caller.Account { // the part of its forms is smaller
			continue
		}
		m.holder = x.sender()
		m.limit = quota.Limit{Rate: m.limit.Rate / addressShare, Burst: max(1, m.limit.Burst/addressShare)}
		all = append(all, m)
	}
	return all
}

// takeSender takes a token from the quota of the client's address at the intake. The error is a limitError or a
// storageError.
func (x *exchange) takeSender() error {
	for _, m := range x.senderMeters() {
		if left := x.senders.Left(m.key(), m.limit); !left.Allowed {
			x.metrics.limited.WithLabelValues(senderLimit).Inc()
			return m.refusal(left)
		}
	}
	if limit := x.senderLimit(); limit.Rate > 0 {
		if used := x.senders.Take(x.sender(), limit); !used.Allowed {
			return x.tooMany(used)
		}
	}
	return nil
}

func (x *exchange) tooMany(used quota.Use) error {
	x.metrics.limited.WithLabelValues(senderLimit).Inc()
	return limitError{used.RetryAfter}
}

// takeArrival counts a post, once, whose sender has proved itself: against the quota of its address and that of the
// intake.
func (x *exchange) takeArrival() error {
	if x.counted {
		return nil
	}
	x.counted = true
	if err := x.takeSender(); err != nil {
		return err
	}
	return x.take()
}

// spendArrivals counts further arrivals of a post that was let in against the quota of the intake, into debt if
// necessary.
func (x *exchange) spendArrivals(n int) {
	if limit := x.arrivalLimit(x.limit()); n > 0 && limit.Rate > 0 {
		x.quotas.Spend(x.kind.Policy()+" "+x.quotaHolder(), limit.Limit, n)
	}
}

// quotaHolder is the key of a request's quotas: its account or, so that junk at one intake uses up nothing else, its
// intake.
func (x *exchange) quotaHolder() string {
	if x.intake != nil {
		return x.caller.Account + "/" + x.intake.ID
	}
	return x.caller.Account
}

// arrivalLimit is the limit of all posts to the intake together: the account's, or a multiple of that of one address if
// that is larger.
func (x *exchange) arrivalLimit(limit accountLimit) accountLimit {
	sender := x.senderLimit()
	if limit.Rate == 0 || sender.Rate == 0 {
		return accountLimit{}
	}
	all := sender.Times(addressShare)
	return accountLimit{quota.Limit{Rate: max(limit.Rate, all.Rate), Burst: max(limit.Burst, all.Burst)}}
}

// receiveGet answers a handshake or, at an intake that accepts GET, receives the query as a post.
func (x *exchange) receiveGet() (answer, error) {
	settings := x.intake.State.Settings
	handshake := intake.HandshakeOf(settings)
	if handshake != intake.HandshakeNone {
		answer, err := x.answerHandshake()
		if !settings.AcceptGet || !errors.Is(err, intake.ErrHandshake) {
			return answer, err
		}
	}
	if !settings.AcceptGet || x.r.Method != http.MethodGet {
		x.w.Header().Set("Allow", http.MethodPost)
		return answer{}, errWrongMethod
	}
	if err := x.byIntake(x.checkHeaders); err != nil {
		return answer{}, err
	}
	raw := x.raw()
	raw.ContentType = "application/x-www-form-urlencoded"
	query := make(url.Values, len(raw.Query))
	for name, value := range raw.Query {
		query.Set(name, value)
	}
	body := strings.ReplaceAll(query.Encode(), "+", "%20") // a plus would be one that a phone has lost
	return x.arrivalAnswer(x.receiveBody(raw, []byte(body)))
}

// answerHandshake answers a sender that asks whether the address is its customer's. Nothing is appended, so the
// intake's secrets are read from the log.
func (x *exchange) answerHandshake() (answer, error) {
	if err := x.proofsLeft(); err != nil {
		return answer{}, err
	}
	latest, err := x.Directory.ConfirmIntake(x.ctx, x.intake.ID)
	if err != nil {
		return answer{}, err
	}
	p := x.params()
	reply, err := intake.AnswerQuery(latest.State.Settings, latest.Secrets, p.text, x.Now())
	if p.wrong != nil {
		return answer{}, p.wrong
	}
	if errors.Is(err, intake.ErrVerifyToken) {
		if limited := x.takeProof(); limited != nil {
			return answer{}, limited
		}
	}
	return x.handshakeAnswer(reply), err
}

func (x *exchange) handshakeAnswer(reply intake.Reply) answer {
	return answer{stream: func() error {
		x.w.Header().Set("Content-Type", reply.ContentType)
		_, err := x.w.Write(reply.Body)
		return err
	}}
}

// recordPageView records an activity of a visitor of a page with leadlog.js. A page must not have a credential, so it
// sends views to the intake of its forms.
func (x *exchange) recordPageView() (answer, error) {
	if x.intake.State.Settings.Kind != intake.Form {
		return answer{}, intake.ErrNotFound
	}
	if err := x.byIntake(x.checkOrigin); err != nil {
		return answer{}, err
	}
	body, err := x.membersUpTo(maxPageView, errViewLarge)
	if err != nil {
		return answer{}, err
	}
	x.caller.IP, x.caller.UserAgent = "", ""
	return answer{status: http.StatusAccepted, body: envelope{Success: true}}, x.byIntake(func() (bool, error) {
		if _, err := x.checkOrigin(); err != nil {
			return false, err
		}
		_, err := x.Commands.RecordActivity(x.ctx, command.RecordActivity{
			Admission: command.Admission{Caller: x.caller, Account: x.admission.Account}.ByIntake(x.intake),
			VisitorID: x.pathParam("visitorId"), Body: body,
		})
		return err == nil, err
	})
}

// checkOrigin checks that a page may post to the intake, and lets that page read the answer. The error is errOrigin.
func (x *exchange) checkOrigin() (confirmed bool, err error) {
	listed := x.intake.State.Settings.Origins
	if len(listed) == 0 {
		return true, nil // an append confirms it
	}
	origin, header := x.r.Header.Get("Origin"), x.w.Header()
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
func (x *exchange) answerPreflight() (answer, error) {
	requested := x.r.Header
	settings := x.intake.State.Settings
	err := x.byIntake(x.checkOrigin)
	if settings.Kind != intake.Form || len(settings.Origins) == 0 || errors.Is(err, errOrigin) ||
		requested.Get("Access-Control-Request-Method") != http.MethodPost {
		x.w.Header().Set("Allow", http.MethodPost)
		return answer{}, errWrongMethod
	}
	if err != nil {
		return answer{}, err
	}
	header := x.w.Header()
	header.Del("Access-Control-Expose-Headers")
	header.Set("Access-Control-Allow-Methods", http.MethodPost)
	header.Set("Access-Control-Allow-Headers", "Content-Type, "+idempotencyHeader+", "+requestIDHeader)
	header.Set("Access-Control-Max-Age", "600") // seconds
	return answer{stream: func() error { x.w.WriteHeader(http.StatusNoContent); return nil }}, nil
}
