// Checkreceipt checks a receipt against an event with the public key of the log. It shares no code with leadlog, and may be copied into a module
// of its own.
//
//	checkreceipt receipt.txt event.json KEY
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	receipt, err := os.ReadFile(os.Args[1])
	check(err)
	event, err := os.ReadFile(os.Args[2])
	check(err)
	key, err := note.NewVerifier(os.Args[3])
	check(err)

	// The key signed a checkpoint of its log, whose tree has the leaf.
	leaf, err := torchwood.ProofExtraData(receipt)
	check(err)
	policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(key.Name()), torchwood.SingleVerifierPolicy(key))
	check(torchwood.VerifyProof(policy, tlog.RecordHash(leaf), receipt))

	// The leaf is of the event.
	var logged, shown map[string]any
	check(json.Unmarshal(leaf, &logged))
	check(json.Unmarshal(event, &shown))
	for _, member := range []string{"id", "revision", "at"} {
		if logged[member] != shown[member] {
			log.Fatalf("%s is %v, and %v in the receipt", member, shown[member], logged[member])
		}
	}
	if !strings.HasPrefix(fmt.Sprint(logged["type"]), fmt.Sprint(shown["type"], ".v")) { // the log has the version
		log.Fatalf("type is %v, and %v in the receipt", shown["type"], logged["type"])
	}
	fmt.Println("event", shown["id"], "is on the log", key.Name())
}
