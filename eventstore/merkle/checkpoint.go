package merkle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

var (
	// ErrCheckpoint means that a text is not a checkpoint of this log.
	ErrCheckpoint = errors.New("not a checkpoint of this log")
	// ErrSignature means that a checkpoint is not signed by the expected key.
	ErrSignature = errors.New("the checkpoint is not signed by this key")
	// ErrPublicKey means that a text is not the public key of a log.
	ErrPublicKey = errors.New("not a public key of a log, such as leads.example.com/log+1a2b3c4d+AUx…")
	// ErrCosignatures means that too few of the trusted witnesses have cosigned a checkpoint.
	ErrCosignatures = errors.New("too few witnesses have cosigned the checkpoint")
	// ErrWitnessKey means that a text is not the key of a witness, or that a key is given twice.
	ErrWitnessKey = errors.New("not keys of different witnesses, such as example.com/witness+1a2b3c4d+BAUx…")
)

// originOf returns the origin of a tree in its checkpoints: the log's name or, below it, the tree of an account's token
// events.
func originOf(log, account string) string {
	if account == "" {
		return log
	}
	return log + "/accounts/" + account + "/tokens"
}

// accountOf is the inverse of originOf.
func accountOf(log, origin string) (account string, of bool) {
	below, _ := strings.CutPrefix(origin, log+"/accounts/")
	if account, of = strings.CutSuffix(below, "/tokens"); !of {
		account = ""
	}
	return account, origin == originOf(log, account)
}

// Signer signs the checkpoints of a log and of its accounts.
type Signer struct {
	note.Verifier
	public  string
	private ed25519.PrivateKey
}

// NewSigner returns the signer of a log with the key of an Ed25519 seed, 32 bytes.
func NewSigner(log string, seed []byte) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("seed of %d bytes, must be %d", len(seed), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public, err := note.NewEd25519VerifierKey(log, private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	return &Signer{verifier, public, private}, err
}

// PublicKey returns the verifier key: the log's name, the key's hash and the key.
func (s *Signer) PublicKey() string { return s.public }

// Sign implements note.Signer.
func (s *Signer) Sign(text []byte) ([]byte, error) { return ed25519.Sign(s.private, text), nil }

// SignTree signs a checkpoint of the tree of an account's token events or, without an account, of the whole log. The
// same tree gives the same text.
//
//	leads.example.com/log/accounts/acme/tokens
//	7
//	y0BsKtTUYxLTFCJqXe4fTVPEcfsq0jgzQQCLIaFzs1E=
//
//	— leads.example.com/log 1a2b3c4d…
func (s *Signer) SignTree(account string, tree tlog.Tree) (string, error) {
	text := torchwood.Checkpoint{Origin: originOf(s.Name(), account), Tree: tree}.String()
	signed, err := note.Sign(&note.Note{Text: text}, s)
	return string(signed), err
}

// Checkpoint is a verified checkpoint.
type Checkpoint struct {
	torchwood.Checkpoint
	Account      string // of the tree of its token events; empty: the tree of the whole log
	PublicKey    string // of the log, which signed it
	Cosignatures []Cosignature
}

// Cosignature is a witness's signature of a checkpoint.
type Cosignature struct {
	Witness  string
	At       time.Time // zero if it was not verified
	Verified bool      // with a key that the caller trusts
}

// Trust is the keys that must have signed a checkpoint.
type Trust struct {
	PublicKey string   // of the log
	Seed      []byte   // without PublicKey: the seed of the log's key, whatever the name of the log
	Witnesses []string // keys of the witnesses
	Quorum    int      // number of witnesses that must have cosigned
}

// Open verifies a signed checkpoint of the log or of one of its accounts. Only the canonical form is accepted. The
// errors are ErrCheckpoint, ErrPublicKey, ErrWitnessKey, ErrSignature and ErrCosignatures.
func (t Trust) Open(text []byte) (c Checkpoint, err error) {
	if c.PublicKey, err = t.publicKey(text); err != nil {
		return c, err
	}
	key, err := note.NewVerifier(c.PublicKey)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrPublicKey, err)
	}
	verifiers, err := t.witnesses()
	if err != nil {
		return c, err
	}
	opened, err := note.Open(text, note.VerifierList(append(verifiers, key)...))
	if wrong, is := errors.AsType[*note.InvalidSignatureError](err); is {
		return c, fmt.Errorf("%w: the signature of %s is wrong", ErrSignature, wrong.Name)
	} else if _, is := errors.AsType[*note.UnverifiedNoteError](err); is {
		return c, fmt.Errorf("%w: %s", ErrSignature, c.PublicKey)
	} else if err != nil {
		return c, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	if lines := bytes.Count(text[len(opened.Text)+1:],
		[]byte{'\n'}); lines != len(opened.Sigs)+len(opened.UnverifiedSigs) {
		return c, fmt.Errorf("%w: a signature is there twice", ErrCheckpoint)
	}
	if c.Cosignatures, err = t.cosignatures(key, opened); err != nil {
		return c, err
	}
	if c.Checkpoint, err = torchwood.ParseCheckpoint(opened.Text); err != nil {
		return c, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	if c.Extension != "" {
		return c, fmt.Errorf("%w: it has extension lines", ErrCheckpoint)
	}
	account, of := accountOf(key.Name(), c.Origin)
	if c.Account = account; !of {
		return c, fmt.Errorf("%w: it is of %s, and the key of %s", ErrCheckpoint, c.Origin, key.Name())
	}
	return c, nil
}

// publicKey returns the verifier key of the log. The first signature of a checkpoint names the log.
func (t Trust) publicKey(text []byte) (string, error) {
	if t.PublicKey != "" || t.Seed == nil {
		return t.PublicKey, nil
	}
	_, signature, _ := bytes.Cut(text, []byte("\n\n— "))
	log, _, _ := bytes.Cut(signature, []byte{' '})
	signer, err := NewSigner(string(log), t.Seed)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return signer.PublicKey(), nil
}

func (t Trust) witnesses() ([]note.Verifier, error) {
	witnesses := make([]note.Verifier, len(t.Witnesses))
	for i, vkey := range t.Witnesses {
		witness, err := torchwood.NewCosignatureVerifier(vkey)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrWitnessKey, vkey, err)
		}
		if slices.Contains(t.Witnesses[:i], vkey) {
			return nil, fmt.Errorf("%w: %s is given twice", ErrWitnessKey, vkey)
		}
		witnesses[i] = witness
	}
	return witnesses, nil
}

// cosignatures returns those of a note that the log's key must have signed.
func (t Trust) cosignatures(key note.Verifier, opened *note.Note) (cosigned []Cosignature, err error) {
	for _, s := range opened.Sigs {
		// The last character has unused bits, which must be zero.
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return nil, fmt.Errorf("%w: the signature of %s is not in canonical form", ErrSignature, s.Name)
		}
		if s.Name == key.Name() && s.Hash == key.KeyHash() {
			continue
		}
		at, err := torchwood.CosignatureTimestamp(s)
		if err != nil {
			return nil, fmt.Errorf("%w: of %s: %w", ErrSignature, s.Name, err)
		}
		cosigned = append(cosigned, Cosignature{Witness: s.Name, At: time.Unix(at, 0).UTC(), Verified: true})
	}
	verified := len(cosigned)
	switch {
	case verified == len(opened.Sigs):
		return nil, fmt.Errorf("%w: only witnesses have signed it", ErrSignature)
	case verified < t.Quorum:
		return nil, fmt.Errorf("%w: %d, not %d", ErrCosignatures, verified, t.Quorum)
	}
	for _, s := range opened.UnverifiedSigs {
		cosigned = append(cosigned, Cosignature{Witness: s.Name})
	}
	return cosigned, nil
}
