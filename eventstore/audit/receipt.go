package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

var (
	// ErrReceipt means that a text is not a receipt.
	ErrReceipt = errors.New("not a receipt of leadlog")
	// ErrNotIncluded means that the tree of a receipt's checkpoint does not contain the receipt's leaf.
	ErrNotIncluded = errors.New("the tree of the checkpoint does not have the event at this index")
	// ErrCosignatures means that too few of the trusted witnesses have cosigned a receipt's checkpoint.
	ErrCosignatures = errors.New("too few witnesses have cosigned the checkpoint")
	// ErrWitnessKey means that a text is not the key of a witness, or that a key is given twice.
	ErrWitnessKey = errors.New("not keys of different witnesses, such as example.com/witness+1a2b3c4d+BAUx…")
)

// receiptHeader is the first line of a receipt.
const receiptHeader = "c2sp.org/tlog-proof@v1"

// Leaf is the record of an event in the tree over the whole log, in the form of [LogRecord].
type Leaf struct {
	At       string              `json:"at"`
	ID       string              `json:"id"`
	Revision eventstore.Revision `json:"revision"`
	Stored   string              `json:"stored"` // SHA-256, in hexadecimal, of the stored metadata and data
	Stream   string              `json:"stream"`
	Type     string              `json:"type"` // with its version
}

// ParseLeaf parses the record of a leaf, which has exactly one form.
func ParseLeaf(record []byte) (l Leaf, err error) {
	if err := json.Unmarshal(record, &l, json.RejectUnknownMembers(true)); err != nil {
		return Leaf{}, err
	}
	written, err := json.Marshal(l, json.Deterministic(true))
	if err != nil || !bytes.Equal(written, record) {
		return Leaf{}, errors.New("not in canonical form")
	}
	if _, err := time.Parse(time.RFC3339Nano, l.At); err != nil || !event.ValidID(l.ID) || len(l.Stored) != hex.EncodedLen(sha256.Size) || l.Revision < 0 {
		return Leaf{}, errors.New("not the record of an event")
	}
	return l, nil
}

// moment returns the leaf's time in the format of the API.
func (l Leaf) moment() string {
	at, _ := time.Parse(time.RFC3339Nano, l.At) // checked by ParseLeaf
	return FormatTime(at)
}

// Receipt proves that an event is on the log: a C2SP transparency log proof (c2sp.org/tlog-proof), with the record of the leaf as extra
// data.
type Receipt struct {
	Leaf         Leaf
	Index        int64 // of the leaf in the tree
	Checkpoint   torchwood.Checkpoint
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
	PublicKey string   // of the log, or of the heads of its accounts
	Witnesses []string // keys of the witnesses
	Quorum    int      // number of witnesses that must have cosigned
}

// FormatReceipt formats the receipt of a leaf. Its path leads to the tree of the signed checkpoint.
func FormatReceipt(leaf []byte, index int64, path tlog.RecordProof, checkpoint []byte) []byte {
	return torchwood.FormatProofWithExtraData(index, leaf, path, checkpoint)
}

// OpenReceipt verifies a receipt without the service: the checkpoint must be signed by the log's key and a quorum of witnesses, and its
// tree must contain the leaf. Only the canonical form of a receipt is accepted. The errors are ErrReceipt, ErrPublicKey, ErrWitnessKey,
// ErrSignature, ErrCosignatures and ErrNotIncluded.
func OpenReceipt(text []byte, trust Trust) (r Receipt, err error) {
	leaf, index, path, checkpoint, err := splitReceipt(text)
	if err != nil {
		return r, err
	}
	if r.Leaf, err = ParseLeaf(leaf); err != nil {
		return r, fmt.Errorf("%w: extra: %w", ErrReceipt, err)
	}
	r.Index = index
	if r.Checkpoint, r.Cosignatures, err = trust.open(checkpoint); err != nil {
		return r, err
	}
	if err := tlog.CheckRecord(path, r.Checkpoint.N, r.Checkpoint.Hash, index, tlog.RecordHash(leaf)); err != nil {
		return r, fmt.Errorf("%w: index %d, size %d", ErrNotIncluded, index, r.Checkpoint.N)
	}
	return r, nil
}

// splitReceipt parses a receipt up to its checkpoint.
func splitReceipt(text []byte) (leaf []byte, index int64, path tlog.RecordProof, checkpoint []byte, err error) {
	head, checkpoint, ok := bytes.Cut(text, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) < 3 || lines[0] != receiptHeader {
		return nil, 0, nil, nil, fmt.Errorf("%w: it must begin with %s", ErrReceipt, receiptHeader)
	}
	extra, isExtra := strings.CutPrefix(lines[1], "extra ")
	if leaf, err = base64.StdEncoding.DecodeString(extra); err != nil || !isExtra {
		return nil, 0, nil, nil, fmt.Errorf("%w: line 2 must be extra and the leaf in base64", ErrReceipt)
	}
	number, isIndex := strings.CutPrefix(lines[2], "index ")
	if index, err = strconv.ParseInt(number, 10, 64); err != nil || !isIndex || index < 0 {
		return nil, 0, nil, nil, fmt.Errorf("%w: line 3 must be the index", ErrReceipt)
	}
	for i, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, 0, nil, nil, fmt.Errorf("%w: line %d must be a hash", ErrReceipt, i+4)
		}
		path = append(path, hash)
	}
	if !bytes.Equal(FormatReceipt(leaf, index, path, checkpoint), text) { // base64 and numbers have several encodings
		return nil, 0, nil, nil, fmt.Errorf("%w: it is not in canonical form", ErrReceipt)
	}
	return leaf, index, path, checkpoint, nil
}

// open verifies a signed checkpoint.
func (t Trust) open(text []byte) (c torchwood.Checkpoint, cosigned []Cosignature, err error) {
	origin, _, _ := bytes.Cut(text, []byte{'\n'})
	key, err := t.verifier(string(origin))
	if err != nil {
		return c, nil, fmt.Errorf("%w: %w", ErrPublicKey, err)
	}
	witnesses := make([]torchwood.Policy, len(t.Witnesses))
	for i, vkey := range t.Witnesses {
		witness, err := torchwood.NewCosignatureVerifier(vkey)
		if err != nil {
			return c, nil, fmt.Errorf("%w: %s: %w", ErrWitnessKey, vkey, err)
		}
		if slices.Contains(t.Witnesses[:i], vkey) {
			return c, nil, fmt.Errorf("%w: %s is given twice", ErrWitnessKey, vkey)
		}
		witnesses[i] = torchwood.SingleVerifierPolicy(witness)
	}
	policy := torchwood.ThresholdPolicy(3, torchwood.OriginPolicy(key.Name()), torchwood.SingleVerifierPolicy(key),
		torchwood.ThresholdPolicy(0, witnesses...)) // they are counted below
	c, opened, err := torchwood.VerifyCheckpoint(text, policy)
	var unverified *note.UnverifiedNoteError
	var wrong *note.InvalidSignatureError
	switch {
	case errors.As(err, &wrong):
		return c, nil, fmt.Errorf("%w: the signature of %s is wrong", ErrSignature, wrong.Name)
	case errors.As(err, &unverified):
		return c, nil, fmt.Errorf("%w: %s", ErrSignature, t.PublicKey)
	case err != nil:
		return c, nil, fmt.Errorf("%w: its checkpoint: %w", ErrReceipt, err)
	}
	if lines := bytes.Count(text[len(opened.Text)+1:], []byte{'\n'}); lines != len(opened.Sigs)+len(opened.UnverifiedSigs) {
		return c, nil, fmt.Errorf("%w: a signature is there twice", ErrReceipt)
	}
	if c.Extension != "" {
		return c, nil, fmt.Errorf("%w: its checkpoint has extension lines", ErrReceipt)
	}
	verified := 0
	for _, s := range opened.Sigs {
		if !canonical(s) {
			return c, nil, fmt.Errorf("%w: the signature of %s is not in canonical form", ErrSignature, s.Name)
		}
		if s.Name == key.Name() && s.Hash == key.KeyHash() {
			continue
		}
		at, err := torchwood.CosignatureTimestamp(s)
		if err != nil {
			return c, nil, fmt.Errorf("%w: of %s: %w", ErrSignature, s.Name, err)
		}
		verified++
		cosigned = append(cosigned, Cosignature{Witness: s.Name, At: time.Unix(at, 0).UTC(), Verified: true})
	}
	for _, s := range opened.UnverifiedSigs {
		cosigned = append(cosigned, Cosignature{Witness: s.Name})
	}
	if verified < t.Quorum {
		return c, nil, fmt.Errorf("%w: %d, not %d", ErrCosignatures, verified, t.Quorum)
	}
	return c, cosigned, nil
}

// verifier returns the verifier of a log's checkpoints. One key signs the checkpoints, under the name of the log, and the heads of
// accounts. If it is given under the name of the heads, it is used under the name of the checkpoint's log.
func (t Trust) verifier(origin string) (note.Verifier, error) {
	vkey := t.PublicKey
	if name, rest, _ := strings.Cut(vkey, "+"); name == keyName && !strings.HasPrefix(origin, originPrefix) {
		if _, err := note.NewVerifier(vkey); err != nil {
			return nil, err
		}
		_, encoded, _ := strings.Cut(rest, "+")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, err
		}
		if vkey, err = note.NewEd25519VerifierKey(origin, key[1:]); err != nil { // after the algorithm
			return nil, err
		}
	}
	return note.NewVerifier(vkey)
}

// canonical reports whether a signature is in canonical base64.
func canonical(s note.Signature) bool {
	decoded, err := base64.StdEncoding.DecodeString(s.Base64)
	return err == nil && base64.StdEncoding.EncodeToString(decoded) == s.Base64
}

// shownEvent is an event in the list of a lead's events, with the fields that a leaf has.
type shownEvent struct {
	ID       *string              `json:"id"`
	Stream   *string              `json:"stream"` // only in the change feed
	Revision *eventstore.Revision `json:"revision"`
	Type     *string              `json:"type"`
	At       *string              `json:"at"`
}

// ErrEvent means that a text is not an event from a list of the service.
var ErrEvent = errors.New("not an event of a list of the service")

// Compare compares the receipt with an event from a list of the service, in JSON. It returns the first difference, as a sentence, or an
// empty string. The error is ErrEvent.
func (r Receipt) Compare(shown []byte) (difference string, err error) {
	var e shownEvent
	if err := json.Unmarshal(shown, &e); err != nil {
		return "", fmt.Errorf("%w: %w", ErrEvent, err)
	}
	if e.ID == nil || e.Revision == nil || e.Type == nil || e.At == nil {
		return "", fmt.Errorf("%w: it must have id, type, revision and at", ErrEvent)
	}
	differs := func(member string, of, leaf any) string {
		return fmt.Sprintf("%s is %v in the event, and %v in the receipt", member, of, leaf)
	}
	switch l := r.Leaf; {
	case *e.ID != l.ID:
		return differs("id", *e.ID, l.ID), nil
	case e.Stream != nil && *e.Stream != l.Stream:
		return differs("stream", *e.Stream, l.Stream), nil
	case *e.Revision != l.Revision:
		return differs("revision", *e.Revision, l.Revision), nil
	case *e.Type != event.PublicName(l.Type):
		return differs("type", *e.Type, event.PublicName(l.Type)), nil
	case *e.At != l.moment():
		return differs("at", *e.At, l.moment()), nil
	}
	return "", nil
}
