// Checkevidence checks evidence with the public key of its log, and shares no code with leadlog: checkevidence evidence.json KEY
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strings"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type evidence struct {
	Event   map[string]jsontext.Value `json:"event"`
	Opening struct {
		Nonce  string `json:"nonce"`
		Stored []byte `json:"stored"`
	} `json:"opening"`
	Receipt string `json:"receipt"`
}

func check(holds bool, otherwise any) {
	if !holds {
		log.Fatal(otherwise)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	check(err == nil, err)
	key, err := note.NewVerifier(os.Args[2])
	check(err == nil, err)
	var file struct {
		Data *evidence `json:"data"`
		evidence
	}
	err = json.Unmarshal(text, &file) // detects doubled members
	check(err == nil, err)
	e := file.evidence
	if file.Data != nil {
		e = *file.Data
	}

	// The key signed a checkpoint of its log, whose tree has the leaf, which is of the stored event.
	record, err := torchwood.ProofExtraData([]byte(e.Receipt))
	check(err == nil, err)
	policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(key.Name()), torchwood.SingleVerifierPolicy(key))
	err = torchwood.VerifyProof(policy, tlog.RecordHash(record), []byte(e.Receipt))
	check(err == nil, err)
	var leaf struct{ ID, Stream, Type, At, Stored, Revision jsontext.Value }
	check(json.Unmarshal(record, &leaf, json.MatchCaseInsensitiveNames(true)) == nil, "not a leaf")
	sum := sha256.Sum256(e.Opening.Stored)
	check(string(leaf.Stored) == `"`+hex.EncodeToString(sum[:])+`"`, "stored is not what the tree has")

	// The stored event commits to the event that is shown, but for two members.
	encoded, _, _ := bytes.Cut(e.Opening.Stored, []byte{'\n'})
	var metadata struct{ Actor, Commitment jsontext.Value }
	check(json.Unmarshal(encoded, &metadata, json.MatchCaseInsensitiveNames(true)) == nil, "not metadata")
	same := bytes.Equal(e.Event["id"], leaf.ID) && bytes.Equal(e.Event["revision"], leaf.Revision) && bytes.Equal(e.Event["at"], leaf.At)
	same = same && strings.HasPrefix(string(leaf.Type), strings.TrimSuffix(string(e.Event["type"]), `"`)+".v")
	same = same && bytes.Equal(e.Event["actor"], metadata.Actor) && e.Event["stream"] == nil
	check(same, "another event than the tree has")
	e.Event["stream"] = leaf.Stream
	delete(e.Event, "position")
	delete(e.Event, "requestId")
	shown, _ := json.Marshal(e.Event)
	err = (*jsontext.Value)(&shown).Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // numbers as written
	check(err == nil, err)
	nonce, _ := hex.DecodeString(e.Opening.Nonce)
	sum = sha256.Sum256(append(nonce, shown...))
	check(`"`+hex.EncodeToString(sum[:])+`"` == string(metadata.Commitment), "the content is not what the log committed to")
	fmt.Println("event", string(e.Event["id"]), "was captured so: on the log", key.Name())
}
