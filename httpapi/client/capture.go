package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Arrival is what a person sent. A phone or an email is required; empty members count as absent.
type Arrival struct {
	Name             string         `json:"name,omitempty"`
	Phone            string         `json:"phone,omitempty"` // in any common format
	Email            string         `json:"email,omitempty"`
	Status           string         `json:"status,omitempty"`           // a stage of the account's pipeline
	LeadTemperature  string         `json:"leadTemperature,omitempty"`  // hot, warm or cold
	OpportunityValue string         `json:"opportunityValue,omitempty"` // such as 120000 or ₹1,20,000.50
	VisitorID        string         `json:"visitorId,omitempty"`        // links the lead with activity on the web
	Metadata         map[string]any `json:"metadata,omitempty"`         // "source", "utm_campaign" and the like
	CustomFields     map[string]any `json:"customFields,omitempty"`
}

// Lead is a lead after a capture. A caller that may not read leads gets only the values that it sent.
type Lead struct {
	ID               string         `json:"leadId"`
	ContactUID       string         `json:"contactUID"`
	Name             string         `json:"name"`
	Phone            string         `json:"phone"` // E.164
	Email            string         `json:"email"`
	Status           string         `json:"status"`
	LeadTemperature  string         `json:"leadTemperature"`
	OpportunityValue json.Number    `json:"opportunityValue"` // empty without an opportunity
	OpportunityID    string         `json:"opportunityId"`
	Source           string         `json:"source"`
	CustomFields     map[string]any `json:"customFields"`
	Metadata         map[string]any `json:"metadata"`
	CreatedAt        time.Time      `json:"createdAt"`
	UpdatedAt        time.Time      `json:"updatedAt"`
}

// Captured is the answer to a capture that is on the log.
type Captured struct {
	Lead     Lead      `json:"data"`
	Merged   bool      `json:"merged"`   // the person was known
	Replayed bool      `json:"replayed"` // an earlier capture had the same key: this is its answer
	Warnings []Warning `json:"warnings"`
	EventID  string    `json:"-"` // with which the credential gets the event's receipt; empty in a batch
	Position uint64    `json:"-"` // on the log: a GET with this minPosition shows the capture; 0 in a batch
}

// Warning is a value that was taken in another way than the caller most likely meant.
type Warning struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Capture captures an arrival. The key identifies it, also if the caller's program sends it again after a restart: the
// id of an order or of a form's post, 1 to 255 visible ASCII characters. An empty key is replaced by a random one,
// which makes only this call repeatable.
func (c *Client) Capture(ctx context.Context, key string, arrival Arrival) (Captured, error) {
	body, err := json.Marshal(arrival)
	if err != nil {
		return Captured{}, err
	}
	var captured Captured
	header, err := c.call(ctx, request{
		method: http.MethodPost, path: "/api/v1/crm/leads", key: orRandom(key), body: body, repeatable: true,
	}, &captured)
	if err != nil {
		return Captured{}, err
	}
	captured.Replayed = header.Get("Idempotent-Replayed") == "true"
	captured.EventID = header.Get("X-Event-Id")
	captured.Position, _ = strconv.ParseUint(header.Get("X-Log-Position"), 10, 64)
	return captured, nil
}

// Outcome is that of one arrival of a batch: it was captured, or there is an error.
type Outcome struct {
	Captured
	Err error // usually *Error
}

// MaxBatch is the maximum number of arrivals in a batch. Its body may have 32 MiB.
const MaxBatch = 10_000

// CaptureBatch captures arrivals and returns their outcomes, in order. An arrival that is invalid or refused fails
// alone. The key, like that of Capture, identifies the whole batch. Arrivals that the service could not take, or whose
// answers were lost, are sent again; the error is that of the last attempt when some of them are still without a final
// answer, and it is the Err of those.
func (c *Client) CaptureBatch(ctx context.Context, key string, arrivals []Arrival) ([]Outcome, error) {
	if len(arrivals) > MaxBatch {
		return nil, fmt.Errorf("leadlog: a batch has at most %d arrivals, not %d", MaxBatch, len(arrivals))
	}
	b := batch{client: c, key: orRandom(key), outcomes: make([]Outcome, len(arrivals))}
	for _, arrival := range arrivals {
		line, err := json.Marshal(arrival)
		if err != nil {
			return nil, err
		}
		b.lines = append(b.lines, append(line, '\n'))
	}
	for pauses := c.backoff(); len(arrivals) > 0; {
		r := b.request()
		pending := b.pending
		err := b.attempt(ctx, r)
		if err == nil {
			break
		}
		if b.pending < pending {
			pauses = c.backoff()
		}
		if err = pauses.wait(ctx, r, err); err != nil {
			b.fail(err)
			return b.outcomes, err
		}
	}
	return b.outcomes, nil
}

// batch is a batch in progress.
type batch struct {
	client   *Client
	key      string
	lines    [][]byte // nil: it has its final outcome
	outcomes []Outcome
	pending  int // lines without a final outcome
}

// request returns the request for the pending lines. The service makes the key of a line from its number and skips
// blank lines, so each line stays where it was.
func (b *batch) request() request {
	var body []byte
	b.pending = 0
	for _, line := range b.lines {
		if line == nil {
			line = []byte("\n")
		} else {
			b.pending++
		}
		body = append(body, line...)
	}
	return request{
		method: http.MethodPost, path: "/api/v1/crm/leads/batch", key: b.key, media: "application/x-ndjson", body: body,
		repeatable: true,
	}
}

// attempt sends the pending lines. The error is nil once all have a final outcome.
func (b *batch) attempt(ctx context.Context, r request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(attemptTimeout, cancel) // of each line, because a batch may take minutes
	defer timeout.Stop()
	answer, err := b.client.send(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	unanswered := error(&Error{Status: http.StatusServiceUnavailable, Message: "the answer ended early"})
	for lines := json.NewDecoder(answer.Body); ; {
		var line struct {
			Captured
			Error
			Line       int  `json:"line"`
			Status     int  `json:"status"`
			Success    bool `json:"success"`
			RetryAfter int  `json:"retryAfter"` // seconds
		}
		if err := lines.Decode(&line); err != nil {
			switch {
			case b.pending == 0:
				return nil
			case !errors.Is(err, io.EOF):
				return err
			}
			return unanswered
		}
		timeout.Reset(attemptTimeout)
		i := line.Line - 1
		if i < 0 || i >= len(b.lines) || b.lines[i] == nil {
			return &permanentError{errors.New("leadlog: the answer to the batch has a line that was not sent")}
		}
		if line.Success {
			b.outcomes[i] = Outcome{Captured: line.Captured}
		} else {
			failed := line.Error
			failed.Status, failed.RetryAfter = line.Status, time.Duration(line.RetryAfter)*time.Second
			b.outcomes[i].Err = &failed
			if transient(&failed) {
				unanswered = &failed
				continue
			}
		}
		b.lines[i], b.pending = nil, b.pending-1
	}
}

// fail sets the error of the lines without a final outcome.
func (b *batch) fail(err error) {
	for i, line := range b.lines {
		if line != nil {
			b.outcomes[i].Err = err
		}
	}
}

func orRandom(key string) string {
	if key == "" {
		return rand.Text()
	}
	return key
}
