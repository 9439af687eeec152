package intake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/expression"
	"github.com/leadlog/leadlog/eventstore/event"
)

// MaxElements is how many arrivals a post may have.
const MaxElements = 1000

// ErrElements means that a post has more than MaxElements arrivals.
var ErrElements = errors.New("a post may have at most 1000 arrivals")

var (
	errNotList  = errors.New("must be a list")
	errMessages = errors.New("is not a post of the WhatsApp Cloud API")
)

// Splits reports whether intakes of a kind may have an expression of a post's arrivals. The posts of the others have a
// known form.
func Splits(kind string) bool { return kind == StandardWebhooks || kind == Webhook }

// wrongEach returns why the expression of a post's arrivals is invalid, or "".
func wrongEach(s event.IntakeSettings) string {
	switch {
	case s.Each == "":
		return ""
	case s.Kind != "" && !Splits(s.Kind):
		return "is only for kinds " + StandardWebhooks + " and " + Webhook
	}
	if _, err := environment.Compile(s.Each, expression.List); err != nil {
		return err.Error()
	}
	return ""
}

// Element is one arrival of a post that has several.
type Element struct {
	Body []byte // JSON
	Post []byte // JSON: the post without what its lists have; nil: nothing but lists, or too large
	// Of is the position of the element in a certain post. It is the delivery id of an element without one, so that a
	// post that is sent again has no other effect.
	Of string
}

// Split returns the arrivals of a post that has several, by the intake's expression or because it is a JSON list or a
// post of WhatsApp. Whole is true if the post is one arrival. The errors are ErrElements and, with a text that suits
// the sender, why the expression has no list.
func (m *Mapping) Split(r Request) (elements []Element, whole bool, err error) {
	kind := m.settings.Kind
	var list []jsontext.Value
	var post []byte
	switch {
	case kind == WhatsApp:
		if list, err = messages(r.Body); err != nil {
			return nil, true, err
		}
	case m.each != nil:
		body, err := r.parse()
		if err != nil {
			return nil, true, err
		}
		value, _, err := m.each.JSON(map[string]any{
			"body": body, "item": body, "known": map[string]any{}, "headers": orNone(r.Headers),
			"query": orNone(r.Query),
		})
		if err != nil {
			return nil, true, err
		}
		if json.Unmarshal(value, &list) != nil {
			return nil, true, errNotList
		}
		post = outline(body)
	case Splits(kind) &&
		bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(r.Body, byteOrderMark), " \t\r\n"), []byte("[")):
		if json.Unmarshal(bytes.TrimPrefix(r.Body, byteOrderMark), &list) != nil {
			return nil, true, nil // the mapping says what is wrong
		}
	default:
		return nil, true, nil
	}
	if len(list) > MaxElements {
		return nil, false, ErrElements
	}
	sum := sha256.Sum256(r.Body)
	for i, value := range list {
		elements = append(elements, Element{
			Body: value, Post: post, Of: "post-" + hex.EncodeToString(sum[:16]) + "-" + strconv.Itoa(i),
		})
	}
	return elements, false, nil
}

// outline returns the JSON of a post with its lists emptied.
func outline(body any) []byte {
	const most = 16 << 10 // bytes
	object, ok := body.(map[string]any)
	if !ok {
		return nil
	}
	text, err := json.Marshal(withoutLists(object), json.Deterministic(true))
	if err != nil || len(text) > most {
		return nil
	}
	return text
}

func withoutLists(value any) any {
	switch value := value.(type) {
	case []any:
		return []any{}
	case map[string]any:
		outlined := make(map[string]any, len(value))
		for name, member := range value {
			outlined[name] = withoutLists(member)
		}
		return outlined
	}
	return value
}

// messages returns the messages that persons sent, each with its sender. A post about the status of messages has none.
func messages(body []byte) (list []jsontext.Value, err error) {
	var post struct {
		Entry []struct {
			Changes []struct {
				Field string `json:"field"`
				Value struct {
					Metadata jsontext.Value   `json:"metadata"`
					Contacts []jsontext.Value `json:"contacts"`
					Messages []jsontext.Value `json:"messages"`
				} `json:"value"`
			} `json:"changes"`
		} `json:"entry"`
	}
	if json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &post) != nil {
		return nil, errMessages
	}
	for _, entry := range post.Entry {
		for _, change := range entry.Changes {
			if change.Field != "messages" {
				continue
			}
			for _, message := range change.Value.Messages {
				element := map[string]jsontext.Value{"message": message}
				if sender := senderOf(message, change.Value.Contacts); sender != nil {
					element["contact"] = sender
				}
				if change.Value.Metadata != nil {
					element["metadata"] = change.Value.Metadata
				}
				text, err := json.Marshal(element, json.Deterministic(true))
				if err != nil {
					return nil, errMessages
				}
				list = append(list, text)
			}
		}
	}
	return list, nil
}

// senderOf returns the contact that has the id of a message's sender.
func senderOf(message jsontext.Value, contacts []jsontext.Value) jsontext.Value {
	var from struct {
		From string `json:"from"`
	}
	if json.Unmarshal(message, &from) != nil {
		return nil
	}
	for _, contact := range contacts {
		var known struct {
			ID string `json:"wa_id"`
		}
		if json.Unmarshal(contact, &known) == nil && known.ID == from.From {
			return contact
		}
	}
	return nil
}
