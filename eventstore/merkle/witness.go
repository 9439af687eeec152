package merkle

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness is a service of another operator that cosigns checkpoints. It cosigns a checkpoint only if it extends the
// previous one.
type Witness struct {
	Key *torchwood.CosignatureVerifier
	URL string // base of add-checkpoint
}

// ParseWitness parses vkey=url.
func ParseWitness(text string) (w Witness, err error) {
	at := strings.Index(text, "=http") // keys are in base64, which may end with equals signs
	u, err := url.Parse(text[at+1:])
	if at < 0 || err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.ContainsAny(text[at+1:], "?#") {
		return w, errors.New("not a verifier key, an equals sign and an http or https URL")
	}
	if w.Key, err = torchwood.NewCosignatureVerifier(text[:at]); err != nil {
		return w, fmt.Errorf("the verifier key: %w (it must be one of c2sp.org/tlog-cosignature, with algorithm 4)",
			err)
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

// SeenError is status 409 of c2sp.org/tlog-witness: the witness has seen a checkpoint of another size than the
// request's.
type SeenError struct{ Size int64 }

func (e *SeenError) Error() string {
	return fmt.Sprintf("has seen a checkpoint of %d events", e.Size)
}

// Cosign requests a cosignature of a checkpoint that the log's key has signed, of a tree with these hashes. Old is the
// size of the last checkpoint that the witness is known to have seen; it retries once with the size that the witness
// names, and fails with a SeenError. It returns a signature line.
func (w Witness) Cosign(
	ctx context.Context, log note.Verifier, checkpoint string, old int64, tree tlog.HashReader,
) (string, error) {
	own, err := note.Open([]byte(checkpoint), note.VerifierList(log))
	if err != nil {
		return "", err
	}
	c, err := torchwood.ParseCheckpoint(own.Text)
	if err != nil {
		return "", err
	}
	signature, err := w.addCheckpoint(ctx, own, c.N, old, tree)
	if seen, ok := errors.AsType[*SeenError](err); ok && seen.Size != old {
		if seen.Size > c.N {
			return "", fmt.Errorf("refuses: %w, and the log has %d: events were lost, or another log has its "+
				"name and key", seen, c.N)
		}
		signature, err = w.addCheckpoint(ctx, own, c.N, seen.Size, tree)
	}
	if seen, ok := errors.AsType[*SeenError](err); ok {
		return "", fmt.Errorf("refuses: %w", seen)
	}
	return signature, err
}

// addCheckpoint calls add-checkpoint of c2sp.org/tlog-witness.
func (w Witness) addCheckpoint(
	ctx context.Context, own *note.Note, size, old int64, tree tlog.HashReader,
) (string, error) {
	var body strings.Builder
	fmt.Fprintf(&body, "old %d\n", old)
	if old > 0 && old < size {
		proof, err := tlog.ProveTree(size, old, tree)
		if err != nil {
			return "", fmt.Errorf("proof for the witness: %w", err)
		}
		for _, hash := range proof {
			fmt.Fprintln(&body, hash)
		}
	}
	signed, err := note.Sign(&note.Note{Text: own.Text, Sigs: own.Sigs})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&body, "\n%s", signed)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/add-checkpoint",
		strings.NewReader(body.String()))
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
			return "", &SeenError{size}
		}
		return "", errors.New("refuses: 409 without the size that it has seen")
	case response.StatusCode == http.StatusUnprocessableEntity:
		return "", fmt.Errorf("refuses: the log does not contain the checkpoint of %d events that it cosigned; the "+
			"log was rewritten, or restored from another backup", old)
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
