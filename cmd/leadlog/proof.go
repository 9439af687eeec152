package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// proofFlags are the flags of verify that check files which the service has issued, without its database.
type proofFlags struct {
	Receipt     string   `type:"existingfile" placeholder:"FILE" help:"Receipt of an event to check, with --event. Needs no database."`
	Event       string   `type:"existingfile" placeholder:"FILE" help:"With --receipt: the event, as in GET /api/v1/crm/leads/{leadId}/events."`
	Evidence    string   `type:"existingfile" placeholder:"FILE" help:"Evidence of an event to check: its content with its receipt. Needs no database."`
	Certificate string   `type:"existingfile" placeholder:"FILE" help:"Certificate of an erasure to check. Needs no database."`
	Witness     []string `placeholder:"KEY" sep:"none" help:"With --receipt, --evidence or --certificate: verifier key of a witness that must have cosigned. May be given more than once."`
	Quorum      int      `default:"-1" placeholder:"N" help:"Number of witnesses that must have cosigned. Default: all of --witness."`
}

func (p proofFlags) given() bool {
	return p.Receipt != "" || p.Evidence != "" || p.Certificate != "" || p.Event != "" || len(p.Witness) > 0 ||
		p.Quorum >= 0
}

var errRefuted = errors.New("the proof does not hold")

// checkProof checks a receipt, evidence or a certificate. It needs no database.
func (v *verifyCommand) checkProof(c cli.Output) error {
	switch {
	case v.File != "" || len(v.Tree) > 0 || v.Head != nil || v.Heal:
		return cli.Usagef("a receipt, evidence or certificate is checked without other arguments: verify --receipt " +
			"receipt.txt --event event.json --public-key KEY")
	case len(
		slices.DeleteFunc([]string{v.Receipt, v.Evidence, v.Certificate}, func(file string) bool { return file == "" }),
	) != 1:
		return cli.Usagef("give --receipt with --event, --evidence, or --certificate")
	case (v.Receipt == "") != (v.Event == ""):
		return cli.Usagef("--receipt and --event must be given together")
	case v.Quorum > len(v.Witness):
		return cli.Usagef("--quorum=%d: there are %d of --witness", v.Quorum, len(v.Witness))
	}
	file := v.Receipt + v.Evidence + v.Certificate
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	trust, err := v.trust()
	if err != nil {
		return err
	}
	var r audit.Receipt
	switch {
	case v.Receipt != "":
		r, err = v.checkReceipt(text, trust)
	case v.Evidence != "":
		_, r, err = audit.OpenEvidence(text, trust)
	default:
		r, err = checkCertificate(c, text, trust)
	}
	switch {
	case errors.Is(err, merkle.ErrPublicKey), errors.Is(err, merkle.ErrWitnessKey):
		return v.refused(file, err)
	case errors.Is(err, audit.ErrEvent):
		fmt.Fprintf(c.Out, "%s: %v\n", v.Event, err)
		return errRefuted
	case err != nil:
		fmt.Fprintf(c.Out, "%s: %v\n", file, err)
		return errRefuted
	}
	v.reportKey(c, r.Checkpoint)
	printProof(c, r)
	if v.Evidence != "" {
		fmt.Fprintln(c.Out,
			"its content is what the log committed to at that time; only its position and request id are not covered")
	}
	return nil
}

var errOtherEvent = errors.New("the receipt is of another event")

// checkReceipt opens a receipt, and compares it with the event.
func (v *verifyCommand) checkReceipt(text []byte, trust merkle.Trust) (audit.Receipt, error) {
	event, err := os.ReadFile(v.Event)
	if err != nil {
		return audit.Receipt{}, err
	}
	r, err := audit.OpenReceipt(text, trust)
	if err != nil {
		return r, err
	}
	difference, err := r.Compare(event)
	if err == nil && difference != "" {
		err = fmt.Errorf("%w: %s", errOtherEvent, difference)
	}
	return r, err
}

// checkCertificate opens a certificate, and prints its content without the proof.
func checkCertificate(c cli.Output, text []byte, trust merkle.Trust) (audit.Receipt, error) {
	certificate, r, err := audit.OpenCertificate(text, trust)
	if err != nil {
		return r, err
	}
	fmt.Fprintf(c.Out, "lead %s was erased at %s by %s\n", certificate.LeadID, certificate.Erasure.At,
		certificate.Erasure.Actor)
	for _, id := range certificate.JoinedLeads {
		fmt.Fprintf(c.Out, "with it: lead %s\n", id)
	}
	for _, k := range certificate.KeyCommitments {
		of := ""
		if k.LeadID != certificate.LeadID && !slices.Contains(certificate.JoinedLeads, k.LeadID) {
			of = ", for events from before a split,"
		}
		fmt.Fprintf(c.Out, "destroyed: the key of lead %s%s with the hash %s\n", k.LeadID, of, k.Commitment)
	}
	fmt.Fprintln(c.Out, "stated in the file, and not proven by the log:")
	switch {
	case certificate.Endpoints == nil:
		fmt.Fprintln(c.Out, "  no delivery to an endpoint is recorded")
	case len(certificate.Endpoints) == 0:
		fmt.Fprintln(c.Out, "  the account had no webhook endpoint")
	}
	for _, e := range certificate.Endpoints {
		at := ""
		if e.AcknowledgedAt != nil {
			at = " at " + *e.AcknowledgedAt
		}
		stated := fmt.Sprintf("  endpoint %s (%s): %s%s", e.WebhookID, e.Host,
			strings.ReplaceAll(e.State, "_", " "), at)
		fmt.Fprintln(c.Out, cli.Printable(stated))
	}
	for _, s := range certificate.CannotProve {
		fmt.Fprintln(c.Out, "not proven:", cli.Printable(s))
	}
	return r, nil
}

// printProof prints the event that a receipt proves, and the signers.
func printProof(c cli.Output, r audit.Receipt) {
	fmt.Fprintf(c.Out, "event %s of stream %s at revision %d is number %d of the %d events of the log %s\n",
		r.Leaf.ID, r.Leaf.Stream, r.Leaf.Revision, r.Index+1, r.Checkpoint.N, r.Checkpoint.Origin)
	for _, s := range r.Checkpoint.Cosignatures {
		if s.Verified {
			fmt.Fprintf(c.Out, "cosigned by %s at %s\n", s.Witness, s.At.Format(time.RFC3339))
		} else {
			fmt.Fprintf(c.Out, "cosignature of %s not checked: give its key with --witness\n", s.Witness)
		}
	}
}
