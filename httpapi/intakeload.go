package httpapi

import (
	"net/http"
	"time"
)

// Anyone may post to an intake. Requests there take no slots and no bytes from those of the API: they have their own,
// of which one intake may use a quarter and one address an eighth. A body must arrive at a minimum rate, so that a
// client that stalls frees both.
const (
	bodyRate    = 16 << 10         // bytes a second
	bodyGrace   = 5 * time.Second  // how far a body may be behind that rate
	bodyTimeout = 20 * time.Second // of a whole body
)

// intakeLoad counts the requests at intakes.
type intakeLoad struct {
	requests intakeBudget // in flight
	bodies   intakeBudget // bytes read from their bodies
}

func newIntakeLoad(requests, bodies int64) intakeLoad {
	return intakeLoad{
		requests: newIntakeBudget(max(requests, 1), 1),
		bodies:   newIntakeBudget(bodies, maxArrival),
	}
}

// intakeBudget bounds how much of a resource all requests at intakes use, those of one address, and those at one
// intake.
type intakeBudget struct {
	byAddress budget
	byIntake  budget // its shares alone
}

// newIntakeBudget returns a budget, of which an address and an intake may use at least the given number.
func newIntakeBudget(most, least int64) intakeBudget {
	return intakeBudget{byAddress: newBudget(most, max(most/8, least)), byIntake: newBudget(most, max(most/4, least))}
}

// reserve takes n for a request of an address at an intake, unless less is left of either share or of the budget.
func (b *intakeBudget) reserve(address, intake string, n int64) bool {
	if !b.byIntake.of(intake).charge(n) {
		return false
	}
	if !b.byAddress.of(address).reserve(n) {
		b.byIntake.of(intake).credit(n)
		return false
	}
	return true
}

func (b *intakeBudget) release(address, intake string, n int64) {
	b.byAddress.of(address).release(n)
	b.byIntake.of(intake).credit(n)
}

// beginArrival counts the request among those of its address at intakes, until end is called. The error is
// errOverloaded or a limitError.
func (ex *exchange) beginArrival() (end func(), err error) {
	leave, err := ex.load.arrivals.requests.byAddress.of(ex.address()).enter()
	if err != nil {
		return nil, err
	}
	return func() {
		ex.conn.markIdle()
		if ex.charged {
			ex.load.arrivals.requests.byIntake.of(ex.intake.ID).credit(1)
		}
		if ex.reserved > 0 {
			ex.load.arrivals.bodies.release(ex.address(), ex.intake.ID, ex.reserved)
		}
		leave()
	}, nil
}

// chargeArrival counts the request among those at its intake. The error is a limitError.
func (ex *exchange) chargeArrival() error {
	if ex.charged = ex.load.arrivals.requests.byIntake.of(ex.intake.ID).charge(1); !ex.charged {
		return limitError{retryBehind}
	}
	return nil
}

// pacedBody is the body of a post to an intake.
type pacedBody struct {
	countedBody
	control *http.ResponseController
	late    time.Time // for the body
	due     time.Time // when the received bytes were due
}

func newPacedBody(body countedBody) *pacedBody {
	now := time.Now() // for a duration, so not the configured clock
	return &pacedBody{
		countedBody: body, control: http.NewResponseController(body.ex.w), late: now.Add(bodyTimeout), due: now,
	}
}

// Read waits for bytes until the body is bodyGrace behind bodyRate, or late as a whole. Bytes that arrive early do not
// count for later.
func (b *pacedBody) Read(p []byte) (int, error) {
	late := b.due.Add(bodyGrace)
	if b.late.Before(late) {
		late = b.late
	}
	_ = b.control.SetReadDeadline(late) // an error: the connection has no deadlines, as in some tests
	n, err := b.countedBody.Read(p)
	b.due = b.due.Add(time.Duration(n) * time.Second / bodyRate)
	if now := time.Now(); b.due.After(now) {
		b.due = now
	}
	return n, err
}

// end lets the connection wait for its client as long as others do.
func (b *pacedBody) end() { _ = b.control.SetReadDeadline(time.Now().Add(readTimeout)) }
