package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
)

// access authenticates a caller for a route, or returns why it may not use it.
type access func(*exchange) error

func anyone(*exchange) error { return nil }

// scoped lets JWTs through that have all of some scopes. API tokens are not accepted.
func scoped(scopes ...string) access {
	return func(x *exchange) error {
		credential, err := x.bearer()
		if err != nil {
			return err
		}
		if token.LooksLikeValue(credential) {
			return fmt.Errorf("%w: an API token where a JWT is wanted", command.ErrUnauthorized)
		}
		age := command.ReadAnew
		if x.r.Method == http.MethodGet || x.r.Method == http.MethodHead {
			age = command.Brief
		}
		x.jwt, err = x.byJWT(credential, age, scopes...)
		return err
	}
}

// stillLetIn judges the JWT of a request again while a long answer is being streamed.
func (x *exchange) stillLetIn() error {
	if !x.Now().Before(x.jwt.Expires.Add(leeway)) {
		return command.ErrUnauthorized
	}
	return x.Directory.AdmitJWT(x.detached(), x.jwt.Account, x.jwt.Issued, command.Brief)
}

// capturing lets callers through who may capture leads or record activity, by API token or JWT.
func capturing(x *exchange) error {
	credential, err := x.bearer()
	if err != nil {
		return err
	}
	if token.LooksLikeValue(credential) {
		err = x.byToken(credential)
	} else {
		var identity Identity
		if identity, err = x.byJWT(credential, command.AnyAge, "leads:write"); err == nil {
			err = x.admit(func(a command.Admission) command.Admission {
				return a.ByJWT(identity.Issued, identity.Expires.Add(leeway))
			})
		}
		if errors.Is(err, command.ErrNotProvisioned) {
			err = command.ErrFeatureDisabled // what there is not has no feature
		}
	}
	return err
}

// admit admits the caller's account, and adds the credential to the admission, so that the append checks it. A caller whose
// credential is no longer good learns nothing about the account.
func (x *exchange) admit(by func(command.Admission) command.Admission) (err error) {
	x.admission, err = x.Directory.Admit(x.ctx, x.caller)
	x.admission = by(x.admission)
	if errors.Is(err, command.ErrFeatureDisabled) {
		return x.orRevoked(err)
	}
	return err
}

// bearer returns the credential of a request, which must be exactly one.
func (x *exchange) bearer() (string, error) {
	headers := x.r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", fmt.Errorf("%w: %d Authorization headers", command.ErrUnauthorized, len(headers))
	}
	scheme, credential, _ := strings.Cut(headers[0], " ")
	credential = strings.TrimSpace(credential)
	if !strings.EqualFold(scheme, "Bearer") || credential == "" {
		return "", fmt.Errorf("%w: not a bearer credential", command.ErrUnauthorized)
	}
	return credential, nil
}

// byToken authenticates an API token and admits its account. A cached token that is good is accepted, since the append checks it
// again. What fails its checksum is refused without a look-up, and so without a limit. Anything else is read from the log, within
// the limit of the client's address or of the token.
func (x *exchange) byToken(credential string) error {
	x.record.credential = "token"
	value, err := token.ParseValue(credential)
	if err != nil {
		return fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	believed, known := x.Directory.KnownToken(value)
	if !known {
		if err := x.spendLookup(value.TokenID()); err != nil {
			return err
		}
		if believed, err = x.Directory.ConfirmToken(x.ctx, value); err != nil {
			return err
		}
	}
	bearer := "token:" + value.TokenID()
	x.identify(believed.State.Account, bearer, bearer)
	return x.admit(func(a command.Admission) command.Admission { return a.ByToken(value, believed) })
}

// byJWT authenticates a JWT that has all of some scopes. Its account must be provisioned, unless the scope is admin: that JWT
// provisions accounts.
func (x *exchange) byJWT(credential string, age time.Duration, scopes ...string) (Identity, error) {
	identity, err := x.verify(credential, age)
	if err != nil && !errors.Is(err, command.ErrNotProvisioned) {
		return Identity{}, err
	}
	for _, scope := range scopes {
		if !identity.May(scope) {
			return Identity{}, scopeError(identity.nameOf(scope))
		}
	}
	if slices.Contains(scopes, adminScope) {
		err = nil
	}
	return identity, err
}

// verify authenticates a JWT. Only one that was not signed by the issuer counts as a guess. Age is how old the cached account may
// be that says it is not revoked.
func (x *exchange) verify(credential string, age time.Duration) (Identity, error) {
	x.record.credential = "jwt"
	if x.JWT == nil {
		return Identity{}, fmt.Errorf("%w: no JWTs are accepted here", command.ErrUnauthorized)
	}
	identity, err := x.JWT.Verify(x.ctx, credential, x.Now())
	if errors.Is(err, errNoKeys) {
		return Identity{}, err
	}
	if err != nil {
		if errors.Is(err, errForged) {
			if err := x.spend(); err != nil {
				return Identity{}, err
			}
		}
		return Identity{}, fmt.Errorf("%w: %w", command.ErrUnauthorized, err)
	}
	x.identify(identity.Account, "user:"+identity.Subject, "jwt:"+identity.Subject)
	x.caller.ReadsLeads = identity.May("leads:read")
	return identity, x.Directory.AdmitJWT(x.ctx, identity.Account, identity.Issued, age)
}

// sample records that an API token was used, be it for a dry run, or that an earlier value of one was refused, without waiting.
func (x *exchange) sample(err error) {
	if x.Uses == nil {
		return
	}
	var refused *command.RefusedUse
	if errors.As(err, &refused) {
		x.Uses.Refused(x.caller, refused)
		return
	}
	if id, ok := strings.CutPrefix(x.caller.Credential, "token:"); ok {
		x.Uses.Used(x.caller.Account, id)
	}
}

func (x *exchange) identify(account, actor, credential string) {
	x.caller.Account, x.caller.Actor, x.caller.Credential = account, actor, credential
	x.record.account = account
}

// confirmTime bounds how long a refusal waits to be confirmed.
const confirmTime = 5 * time.Second

// orRevoked returns a refusal only if the caller is still let in: the holder of a revoked token must learn nothing else. It has its
// own time limit, because a slow body may have used up the request's.
func (x *exchange) orRevoked(err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), confirmTime)
	defer cancel()
	if revoked := x.admission.Confirm(ctx, x.Directory); revoked != nil {
		return revoked
	}
	return err
}

// tokenIDs are the ids of the tokens that exist, as far as the view of tokens has shown them. They are read when they are first needed
// and then, at most once a second, those that are new.
type tokenIDs struct {
	now  func() time.Time
	mu   sync.Mutex
	ids  map[ulid.ULID]struct{}
	last ulid.ULID // the newest
	read time.Time
}

const (
	tokenIDsKept  = 500_000         // 16 bytes each, and the map
	tokenIDsPause = time.Second     // between two reads
	tokenIDsClock = 5 * time.Minute // by how much the clocks of processes may differ that make ids
)

// has reports whether a token exists. Load returns the ids behind one, in order. While one caller reads, others use what is there.
func (t *tokenIDs) has(ctx context.Context, id string, load func(ctx context.Context, after string) ([]string, error)) bool {
	wanted, err := ulid.ParseStrict(id)
	if err != nil {
		return false
	}
	if after, due := t.due(); due {
		if found, err := load(ctx, after); err == nil {
			t.add(found)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.ids[wanted]
	return known
}

// due reports whether the ids are to be read again, behind which one.
func (t *tokenIDs) due() (after string, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if len(t.ids) >= tokenIDsKept || !t.read.IsZero() && now.Sub(t.read) < tokenIDsPause {
		return "", false
	}
	t.read = now
	if newest := t.last.Time(); newest > uint64(tokenIDsClock.Milliseconds()) {
		var from ulid.ULID
		_ = from.SetTime(newest - uint64(tokenIDsClock.Milliseconds())) // earlier than one that fits
		after = from.String()
	}
	return after, true
}

func (t *tokenIDs) add(found []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids == nil {
		t.ids = make(map[ulid.ULID]struct{}, len(found))
	}
	for _, text := range found {
		if id, err := ulid.ParseStrict(text); err == nil && len(t.ids) < tokenIDsKept {
			t.ids[id] = struct{}{}
			if id.Compare(t.last) > 0 {
				t.last = id
			}
		}
	}
}
