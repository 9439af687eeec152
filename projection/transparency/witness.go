package transparency

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"filippo.io/torchwood"
	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/projection/schema"
)

// Witness is a service of another operator that cosigns checkpoints. It cosigns a checkpoint only if it extends the previous one.
type Witness struct {
	Key *torchwood.CosignatureVerifier
	URL string // base of add-checkpoint
}

// ParseWitness parses vkey=url.
func ParseWitness(text string) (w Witness, err error) {
	at := strings.Index(text, "=http") // keys are in base64, which may end with equals signs
	u, err := url.Parse(text[at+1:])
	if at < 0 || err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsAny(text[at+1:], "?#") {
		return w, errors.New("not a verifier key, an equals sign and an http or https URL")
	}
	if w.Key, err = torchwood.NewCosignatureVerifier(text[:at]); err != nil {
		return w, fmt.Errorf("the verifier key: %w (it must be one of c2sp.org/tlog-cosignature, with algorithm 4)", err)
	}
	w.URL = strings.TrimSuffix(text[at+1:], "/")
	return w, nil
}

// witnessTimeout bounds a request to a witness.
const witnessTimeout = 8 * time.Second

// client follows no redirects, so that requests go only to configured addresses.
var client = &http.Client{
	Timeout:       witnessTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// round requests cosignatures of one checkpoint from the witnesses, concurrently with each other and with the growth of the tree.
type round struct {
	running sync.WaitGroup
	ended   chan error  // nil: no round is running
	next    time.Time   // earliest start of the next round
	newest  *checkpoint // nil: a round may have changed it
}

func (r *round) wait() { r.running.Wait() }

// turn signs the tree if it has grown, and starts a round unless one is running or no cosignature is missing.
func (r *round) turn(ctx context.Context, s *session) error {
	if r.ended != nil {
		select {
		case err := <-r.ended:
			r.ended, r.newest = nil, nil
			if err != nil {
				return err
			}
		default:
			return nil
		}
	}
	wait := time.Now().Before(r.next)
	if wait && s.Quorum > 0 {
		return nil
	}
	if r.newest == nil {
		newest, err := s.newest(ctx)
		if err != nil {
			return err
		}
		r.newest = &newest
	}
	c := r.newest
	if !c.published && len(s.cosigned(c.note)) >= s.Quorum { // the quorum was lowered
		if err := s.publish(ctx, *c); err != nil {
			return err
		}
		c.published = true
	}
	if s.tiles.Size() > c.N {
		signed, err := s.sign(ctx, *c)
		if err != nil {
			return err
		}
		r.newest, c = &signed, &signed
	}
	if wait || len(s.Witnesses) == 0 || c.N == 0 {
		return nil
	}
	missing, err := s.missing(ctx, *c)
	if err != nil || len(missing) == 0 {
		return err
	}
	r.next, r.ended = time.Now().Add(s.WitnessInterval), make(chan error, 1)
	given := *c
	r.running.Go(func() { r.ended <- s.collectCosignatures(ctx, given, missing) })
	return nil
}

// pending is a witness that has not cosigned a checkpoint yet.
type pending struct {
	Witness
	index int   // in Options.Witnesses
	size  int64 // of the last checkpoint that it cosigned
}

func (s *session) missing(ctx context.Context, c checkpoint) (missing []pending, err error) {
	sizes := map[string]int64{}
	rows, err := s.conn.Query(ctx, `SELECT key, size FROM audit.witness WHERE origin = $1`, s.origin)
	if err != nil {
		return nil, err
	}
	var key string
	var size int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &size}, func() error { sizes[key] = size; return nil }); err != nil {
		return nil, err
	}
	have := s.cosigned(c.note)
	for i, w := range s.Witnesses {
		if !slices.Contains(have, w.Key.String()) {
			missing = append(missing, pending{w, i, min(sizes[w.Key.String()], c.N)})
		}
	}
	return missing, nil
}

// cosigned returns the keys of the witnesses that have cosigned a note.
func (p *Publisher) cosigned(signed string) (keys []string) {
	for _, w := range p.Witnesses {
		if opened, err := note.Open([]byte(signed), note.VerifierList(w.Key)); err == nil && len(opened.Sigs) > 0 {
			keys = append(keys, w.Key.String())
		}
	}
	return keys
}

// collectCosignatures collects cosignatures, and publishes the checkpoint once there are enough. A witness that does not cosign causes no
// error.
func (s *session) collectCosignatures(ctx context.Context, c checkpoint, from []pending) error {
	type answer struct {
		pending
		signatures string
		err        error
	}
	answers := make(chan answer)
	for _, w := range from {
		go func() {
			signatures, err := s.cosign(ctx, c, w)
			answers <- answer{w, signatures, err}
		}()
	}
	var failed error
	for range from {
		a := <-answers
		if ctx.Err() != nil || failed != nil {
			continue
		}
		if a.err != nil {
			failed = s.refused(ctx, a.pending, a.err)
			continue
		}
		c.note += a.signatures
		failed = s.cosignedBy(ctx, a.pending, c)
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}

// cosignedBy stores a checkpoint with a new cosignature.
func (s *session) cosignedBy(ctx context.Context, w pending, c checkpoint) error {
	enough := len(s.cosigned(c.note)) >= s.Quorum
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		var was string
		err := tx.QueryRow(ctx, `SELECT reason FROM audit.witness WHERE origin = $1 AND key = $2`, s.origin, w.Key.String()).Scan(&was)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if was != "" {
			s.Logger.Info("witness cosigns again", slog.String("witness", w.Key.Name()))
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO audit.witness (origin, key, size, cosigned_at) VALUES ($1, $2, $3, now())
			ON CONFLICT (origin, key) DO UPDATE SET size = $3, cosigned_at = now(), refused_since = NULL, reason = ''`,
			s.origin, w.Key.String(), c.N); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE audit.checkpoint SET note = $3, published_at = CASE WHEN $4 THEN coalesce(published_at, now()) ELSE published_at END
			 WHERE origin = $1 AND size = $2`, s.origin, c.N, c.note, enough); err != nil {
			return err
		}
		return forgetEarlier(ctx, tx, s.origin)
	})
}

// refused counts, logs and stores why a witness did not cosign.
func (s *session) refused(ctx context.Context, w pending, reason error) error {
	s.refusals[w.index].Add(1)
	var was string
	var size int64
	if seen, ok := errors.AsType[*seenError](reason); ok {
		size = seen.size
	}
	err := s.Pool.QueryRow(ctx, `
		WITH was AS (SELECT reason FROM audit.witness WHERE origin = $1 AND key = $2)
		INSERT INTO audit.witness AS w (origin, key, size, refused_since, reason) VALUES ($1, $2, $4, now(), $3)
		ON CONFLICT (origin, key) DO UPDATE SET refused_since = coalesce(w.refused_since, now()), reason = $3, size = greatest(w.size, $4)
		RETURNING coalesce((SELECT reason FROM was), '')`, s.origin, w.Key.String(), reason.Error(), size).Scan(&was)
	if err == nil && was != reason.Error() { // logged once
		s.Logger.Error("witness does not cosign the log", slog.String("witness", w.Key.Name()), slog.String("reason", reason.Error()))
	}
	return schema.Unavailable(err)
}

// seenError is status 409 of c2sp.org/tlog-witness: the witness has seen a checkpoint of another size than the request's.
type seenError struct{ size int64 }

func (e *seenError) Error() string {
	return fmt.Sprintf("has seen a checkpoint of %d events", e.size)
}

// cosign requests a cosignature, and retries once with the size that the witness has seen. It returns signature lines.
func (s *session) cosign(ctx context.Context, c checkpoint, w pending) (string, error) {
	signatures, err := s.addCheckpoint(ctx, c, w, w.size)
	if seen, ok := errors.AsType[*seenError](err); ok && seen.size != w.size {
		if seen.size > c.N {
			return "", fmt.Errorf("refuses: %w, and the log has %d: events were lost, or another log has its name and key", seen, c.N)
		}
		signatures, err = s.addCheckpoint(ctx, c, w, seen.size)
	}
	if seen, ok := errors.AsType[*seenError](err); ok {
		return "", fmt.Errorf("refuses: %w", seen)
	}
	return signatures, err
}

// addCheckpoint calls add-checkpoint of c2sp.org/tlog-witness.
func (s *session) addCheckpoint(ctx context.Context, c checkpoint, w pending, old int64) (string, error) {
	var body strings.Builder
	fmt.Fprintf(&body, "old %d\n", old)
	if old > 0 && old < c.N {
		proof, err := tlog.ProveTree(c.N, old, schema.TileHashes(ctx, s.Pool, s.origin))
		if err != nil {
			return "", fmt.Errorf("proof for the witness: %w", err)
		}
		for _, hash := range proof {
			fmt.Fprintln(&body, hash)
		}
	}
	own, err := note.Open([]byte(c.note), note.VerifierList(s.Signer))
	if err != nil {
		return "", err
	}
	signed, err := note.Sign(&note.Note{Text: own.Text, Sigs: own.Sigs})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&body, "\n%s", signed)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/add-checkpoint", strings.NewReader(body.String()))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", errors.New("does not answer")
	}
	defer response.Body.Close()
	const longest = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(response.Body, longest))
	switch {
	case err != nil:
		return "", errors.New("does not answer")
	case response.StatusCode == http.StatusConflict:
		if size, err := strconv.ParseInt(strings.TrimSuffix(string(answer), "\n"), 10, 64); err == nil && size >= 0 {
			return "", &seenError{size}
		}
		return "", errors.New("refuses: 409 without the size that it has seen")
	case response.StatusCode == http.StatusUnprocessableEntity:
		return "", fmt.Errorf("refuses: the log does not contain the checkpoint of %d events that it cosigned; the log was rewritten, or restored from another backup", old)
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("refuses: %d %s", response.StatusCode, printable(answer))
	}
	// Only the witness's own signature is used, in canonical base64: receipts with another form are invalid.
	opened, err := note.Open([]byte(own.Text+"\n"+string(answer)), note.VerifierList(w.Key))
	if err != nil || opened.Text != own.Text {
		return "", errors.New("answers without a good cosignature")
	}
	signature, err := base64.StdEncoding.DecodeString(opened.Sigs[0].Base64)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("— %s %s\n", opened.Sigs[0].Name, base64.StdEncoding.EncodeToString(signature)), nil
}

// printable returns the beginning of a response for a log and for a table, which stores only UTF-8.
func printable(answer []byte) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(answer), " "))
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), 100)], "")) // the cut may be within a letter
}
