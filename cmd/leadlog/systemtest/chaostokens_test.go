package systemtest

import (
	"context"
	"fmt"
	"time"
)

const tokensPath = "/api/v1/crm/tokens"

// tokenValue is a value that a token was given.
type tokenValue struct {
	name         string // of the token
	token, value string
	position     string // of the fact on the log
	fact         string // its type
	dead         bool   // the token was rotated or deleted after it
}

// keepToken is the life of one token: created, rotated up to ten times, the new value and the old tried after each, and
// deleted. At the end of the load it is left alive, to be tried in the calm.
func (c *chaos) keepToken(ctx context.Context, l *load, name string) (values []tokenValue) {
	got, ok := c.createToken(ctx, name)
	if !ok {
		return nil
	}
	id := got.data()["tokenId"].(string)
	values = []tokenValue{newValue(got, "token.created")}
	for turn := 0; turn < 10 && !l.over.Load(); turn++ {
		if got, _, ok = c.insist(ctx, request{method: "POST", path: tokensPath + "/" + id + "/rotate"}, 200); !ok {
			return values
		}
		values[len(values)-1].dead = true
		values = append(values, newValue(got, "token.rotated"))
		if !c.tryValue(ctx, values[len(values)-1]) || !c.tryValue(ctx, values[len(values)-2]) {
			return values
		}
	}
	if l.over.Load() {
		return values
	}
	got, again, ok := c.insist(ctx, request{method: "DELETE", path: tokensPath + "/" + id}, 200, 404)
	if ok && got.status == 404 && !again {
		c.complain("token %s was not there to be deleted", id)
	}
	if ok {
		values[len(values)-1].dead = true
		c.tryValue(ctx, values[len(values)-1])
	}
	c.sweep(ctx, name)
	return values
}

func newValue(got answer, fact string) tokenValue {
	return tokenValue{
		name: got.data()["name"].(string), token: got.data()["tokenId"].(string), value: got.data()["plainToken"].(string),
		position: got.header.Get("X-Log-Position"), fact: fact,
	}
}

// tryValue uses a value: one that is dead must let nobody in, and one that lives must.
func (c *chaos) tryValue(ctx context.Context, v tokenValue) bool {
	want := []int{200, 201}
	if v.dead {
		want = []int{401}
	}
	_, _, ok := c.insist(ctx, request{
		method: "POST", path: leadsPath, bearer: v.value, body: `{"email":"token@example.com","metadata":{"source":"website"}}`,
	}, want...)
	return ok
}

// createToken creates one. A try without an answer may have made a token that nobody knows, and that holds a place:
// it is looked for when there is none left.
func (c *chaos) createToken(ctx context.Context, name string) (got answer, ok bool) {
	for {
		got, _, ok = c.insist(ctx, request{method: "POST", path: tokensPath, body: fmt.Sprintf(`{"name":%q,"expiresInDays":30}`, name)}, 201, 409)
		if !ok || got.status == 201 {
			return got, ok
		}
		c.sweep(ctx, name)
		time.Sleep(20 * time.Millisecond) // the list may not show it yet, or it is another keeper's
	}
}

// sweep deletes all tokens of a name that the list shows.
func (c *chaos) sweep(ctx context.Context, name string) {
	listed, _, ok := c.insist(ctx, request{method: "GET", path: tokensPath + "?limit=200"}, 200)
	if !ok {
		return
	}
	for _, item := range listed.body["data"].([]any) {
		shown := item.(map[string]any)
		if shown["name"] == name && shown["status"] == "active" {
			c.insist(ctx, request{method: "DELETE", path: tokensPath + "/" + shown["tokenId"].(string)}, 200, 404)
		}
	}
}
