package merkle

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

var (
	// ErrProof means that a text is not a transparency log proof.
	ErrProof = errors.New("not a receipt of leadlog")
	// ErrNotIncluded means that the tree of a proof's checkpoint does not contain its leaf.
	ErrNotIncluded = errors.New("the tree of the checkpoint does not have the event at this index")
)

// proofHeader is the first line of a proof.
const proofHeader = "c2sp.org/tlog-proof@v1"

// Proof proves that a leaf is in a tree: a transparency log proof (c2sp.org/tlog-proof), with the record of the leaf as
// extra data.
type Proof struct {
	Record     []byte
	Index      int64
	Checkpoint Checkpoint
}

// FormatProof formats the proof of a leaf. Its path leads to the tree of the signed checkpoint.
func FormatProof(record []byte, index int64, path tlog.RecordProof, checkpoint []byte) []byte {
	return torchwood.FormatProofWithExtraData(index, record, path, checkpoint)
}

// OpenProof verifies a proof: its checkpoint must be trusted, and the tree must contain the leaf. Only the canonical
// form is accepted. The errors are ErrProof, ErrNotIncluded and those of Open.
func (t Trust) OpenProof(text []byte) (p Proof, err error) {
	record, index, path, checkpoint, err := splitProof(text)
	if err != nil {
		return p, err
	}
	p.Record, p.Index = record, index
	if p.Checkpoint, err = t.Open(checkpoint); err != nil {
		return p, err
	}
	if err := tlog.CheckRecord(path, p.Checkpoint.N, p.Checkpoint.Hash, index, tlog.RecordHash(record)); err != nil {
		return p, fmt.Errorf("%w: index %d, size %d", ErrNotIncluded, index, p.Checkpoint.N)
	}
	return p, nil
}

// splitProof parses a proof up to its checkpoint.
func splitProof(text []byte) (record []byte, index int64, path tlog.RecordProof, checkpoint []byte, err error) {
	head, checkpoint, ok := bytes.Cut(text, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) < 3 || lines[0] != proofHeader {
		return nil, 0, nil, nil, fmt.Errorf("%w: it must begin with %s", ErrProof, proofHeader)
	}
	extra, isExtra := strings.CutPrefix(lines[1], "extra ")
	if record, err = base64.StdEncoding.DecodeString(extra); err != nil || !isExtra {
		return nil, 0, nil, nil, fmt.Errorf("%w: line 2 must be extra and the leaf in base64", ErrProof)
	}
	number, isIndex := strings.CutPrefix(lines[2], "index ")
	if index, err = strconv.ParseInt(number, 10, 64); err != nil || !isIndex || index < 0 {
		return nil, 0, nil, nil, fmt.Errorf("%w: line 3 must be the index", ErrProof)
	}
	for i, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, 0, nil, nil, fmt.Errorf("%w: line %d must be a hash", ErrProof, i+4)
		}
		path = append(path, hash)
	}
	if !bytes.Equal(FormatProof(record, index, path, checkpoint), text) { // base64 and numbers have several encodings
		return nil, 0, nil, nil, fmt.Errorf("%w: it is not in canonical form", ErrProof)
	}
	return record, index, path, checkpoint, nil
}
