package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/leadlog/leadlog/httpapi/client"
)

func ExampleClient_Capture() {
	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	captured, err := leads.Capture(context.Background(), "order-7781", client.Arrival{
		Name: "Asha Rao", Phone: "98765 43210", OpportunityValue: "₹1,20,000",
		Metadata:     map[string]any{"source": "website", "utm_campaign": "diwali"},
		CustomFields: map[string]any{"city": "Pune"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("merged:", captured.Merged, captured.Lead.Phone, captured.Lead.OpportunityValue)

	again, err := leads.Capture(context.Background(), "", client.Arrival{
		Phone: "+91 98765-43210", Email: "Asha@Example.com", Metadata: map[string]any{"source": "whatsapp"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("merged:", again.Merged, again.Lead.Name, again.Lead.Email, again.Lead.ID == captured.Lead.ID)
	// Output:
	// merged: false +919876543210 120000
	// merged: true Asha Rao asha@example.com true
}

// The same key after a restart of the caller has no second effect, and the answer is the first one.
func ExampleClient_Capture_repeated() {
	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	for range 2 {
		captured, err := leads.Capture(context.Background(), "order-7782", client.Arrival{Email: "ravi@example.com"})
		fmt.Println(captured.Merged, captured.Replayed, err)
	}
	// Output:
	// false false <nil>
	// false true <nil>
}

func ExampleError() {
	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	_, err := leads.Capture(context.Background(), "", client.Arrival{Email: "nobody", LeadTemperature: "boiling"})
	var refused *client.Error
	if errors.As(err, &refused) {
		for _, wrong := range refused.Fields {
			fmt.Println(refused.Status, wrong.Field)
		}
	}

	for range 2 {
		_, err = leads.Capture(context.Background(), "", client.Arrival{Phone: "99887 76655"})
	}
	if errors.As(err, &refused) {
		fmt.Println(refused.Status, refused.Code)
	}
	// Output:
	// 400 email
	// 400 leadTemperature
	// 409 DUPLICATE_LEAD_SOURCE
}

func ExampleClient_CaptureBatch() {
	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	outcomes, err := leads.CaptureBatch(context.Background(), "export-2026-11-28", []client.Arrival{
		{Name: "Meera Iyer", Phone: "+91 97654 32109"},
		{Name: "Kabir Shah", Phone: "12"},
		{Name: "Divya Nair", Email: "divya@example.com"},
	})
	if err != nil {
		fmt.Println(err) // the outcomes say which arrivals have no final answer
	}
	for _, o := range outcomes {
		var refused *client.Error
		if errors.As(o.Err, &refused) {
			fmt.Println(refused.Status, refused.Fields[0].Field)
			continue
		}
		fmt.Println(o.Merged, o.Lead.Name)
	}
	// Output:
	// false Meera Iyer
	// 400 phone
	// false Divya Nair
}

func ExampleClient_Events() {
	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	captured, err := leads.Capture(context.Background(), "", client.Arrival{
		Name: "Jutta Weber", Email: "jutta@example.com",
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	follower := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_JWT")}
	cursor := "" // the stored one
	for page, err := range follower.Events(context.Background(), cursor, "lead.created") {
		if err != nil {
			fmt.Println(err)
			return
		}
		found := false
		for _, e := range page.Events {
			if e.ID == captured.EventID {
				found = true
				fmt.Println(e.Type, e.Stream == "lead-"+captured.Lead.ID)
			}
		}
		cursor = page.Next // store it
		if found {
			break // a follower goes on until its context ends
		}
	}
	// Output:
	// lead.created true
}

func ExampleReadWebhook() {
	var secret string
	received := make(chan *client.Webhook)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delivery, err := client.ReadWebhook(r, secret)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		received <- delivery
	}))
	defer receiver.Close()

	manager := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_JWT")}
	var endpoint struct {
		WebhookID string `json:"webhookId"`
		Secret    string `json:"secret"`
	}
	err := manager.Call(context.Background(), http.MethodPost, "/webhooks/endpoints", map[string]any{
		"url": receiver.URL, "events": []string{"lead.created"}, "filter": `data.email == "hook@example.com"`,
	}, &endpoint)
	if err != nil {
		fmt.Println(err)
		return
	}
	secret = endpoint.Secret

	leads := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_TOKEN")}
	if _, err := leads.Capture(context.Background(), "", client.Arrival{
		Name: "Noor Khan", Email: "hook@example.com",
	}); err != nil {
		fmt.Println(err)
		return
	}
	delivery := <-received
	var lead client.Lead
	if err := json.Unmarshal(delivery.Data, &lead); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(delivery.Type, lead.Name, delivery.DeliveryID != "")
	// Output:
	// lead.created Noor Khan true
}

// Call reaches the routes that have no method of their own.
func ExampleClient_Call() {
	manager := client.Client{URL: os.Getenv("LEADLOG_URL"), Credential: os.Getenv("LEADLOG_JWT")}
	var token struct {
		Name       string `json:"name"`
		PlainToken string `json:"plainToken"`
	}
	err := manager.Call(context.Background(), http.MethodPost, "/api/v1/crm/tokens",
		map[string]any{"name": "website", "expiresInDays": 90}, &token)
	fmt.Println(token.Name, token.PlainToken != "", err)
	// Output:
	// website true <nil>
}
