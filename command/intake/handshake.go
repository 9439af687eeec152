package intake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Handshakes are how senders ask whether an address is their customer's, before they post to it.
const (
	HandshakeNone = "none"
	// GET with hub.challenge, which is the answer, and hub.verify_token, which is the secret
	HandshakeMeta      = "meta"
	HandshakeLinkedIn  = "linkedin"  // GET with challengeCode, answered with its HMAC by the secret
	HandshakeChallenge = "challenge" // GET or POST with a challenge, which is the answer
)

// Handshakes returns all handshakes.
func Handshakes() []string {
	return []string{HandshakeNone, HandshakeMeta, HandshakeLinkedIn, HandshakeChallenge}
}

var (
	// ErrVerifyToken means that a handshake does not have the intake's verify token.
	ErrVerifyToken = errors.New("hub.verify_token is not the intake's")
	// ErrHandshake means that a request lacks what a handshake answers.
	ErrHandshake = errors.New("is not a handshake")
)

// HandshakeOf returns the handshake that an intake answers.
func HandshakeOf(settings event.IntakeSettings) string {
	switch {
	case settings.Kind == MetaLeadAds, settings.Kind == WhatsApp:
		return HandshakeMeta
	case settings.Handshake == "":
		return HandshakeNone
	}
	return settings.Handshake
}

// Reply is the answer to a handshake.
type Reply struct {
	ContentType string
	Body        []byte
}

// maxChallenge is the longest challenge in bytes that is answered.
const maxChallenge = 1000

// AnswerQuery answers a handshake by GET. The errors are ErrHandshake and ErrVerifyToken.
func AnswerQuery(
	settings event.IntakeSettings, secrets Secrets, query func(name string) string, now time.Time,
) (Reply, error) {
	switch HandshakeOf(settings) {
	case HandshakeMeta:
		challenge, token := query("hub.challenge"), query("hub.verify_token")
		switch {
		case challenge == "" && token == "" && settings.AcceptGet:
			return Reply{}, ErrHandshake
		case !secrets.answers(token, now) || len(challenge) > maxChallenge:
			return Reply{}, ErrVerifyToken
		}
		return textReply(challenge), nil
	case HandshakeLinkedIn:
		// Any text but a code would let its sender get a signature of a post.
		code := query("challengeCode")
		if code == "" || len(code) > maxFieldKey || !consistsOf(code, letters+upper+"-_") {
			return Reply{}, ErrHandshake
		}
		mac := hmac.New(sha256.New, []byte(secrets.Secret))
		_, _ = mac.Write([]byte(code)) // a hash returns no error
		return objectReply(map[string]string{
			"challengeCode": code, "challengeResponse": hex.EncodeToString(mac.Sum(nil)),
		}), nil
	case HandshakeChallenge:
		if challenge := query("challenge"); challenge != "" && len(challenge) <= maxChallenge {
			return textReply(challenge), nil
		}
	}
	return Reply{}, ErrHandshake
}

// AnswerBody answers a handshake by POST, which needs no proof: a JSON object that has a challenge and, at most, a type
// and a token.
func AnswerBody(settings event.IntakeSettings, body []byte) (reply Reply, asked bool) {
	if HandshakeOf(settings) != HandshakeChallenge || len(body) > 2*maxChallenge {
		return reply, false
	}
	var given struct {
		Challenge string `json:"challenge"`
		Type      string `json:"type"`
		Token     string `json:"token"`
	}
	err := json.Unmarshal(body, &given, json.RejectUnknownMembers(true))
	if err != nil || given.Challenge == "" || len(given.Challenge) > maxChallenge {
		return reply, false
	}
	return objectReply(map[string]string{"challenge": given.Challenge}), true
}

// answers reports whether a token is the verify token. During the overlap of a rotation, the secret before is one too.
func (s Secrets) answers(token string, now time.Time) bool {
	return same(token, s.Verifying()) || s.Old != "" && now.Before(s.OldUntil) && same(token, s.Old)
}

func textReply(challenge string) Reply { return Reply{"text/plain; charset=utf-8", []byte(challenge)} }

func objectReply(members map[string]string) Reply {
	body, _ := json.Marshal(members, json.Deterministic(true)) // texts always have a JSON form
	return Reply{"application/json", body}
}
