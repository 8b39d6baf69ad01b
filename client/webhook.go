package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// Notice is a message to an organisation.
type Notice struct {
	ID        id.Notice  `json:"id"`
	Severity  string     `json:"severity" enum:"info,warn,bad" doc:"info: good to know; warn: something will go wrong unless you act; bad: something went wrong"`
	Title     string     `json:"title"`
	Body      string     `json:"body"`
	Object    string     `json:"object" doc:"id of what it is about; empty: the organisation"`
	CreatedAt time.Time  `json:"created_at"`
	ReadAt    *time.Time `json:"read_at" doc:"when a member of the organisation read it; null: no one has"`
}

// NoticeRead is the answer to marking notices as read.
type NoticeRead struct {
	ID id.Notice `json:"id" doc:"the notice; with readNotices all older ones are read, too"`
}

// Webhook is an address that receives an organisation's notices.
type Webhook struct {
	ID          id.Webhook `json:"id"`
	URL         string     `json:"url"`
	Secret      string     `json:"secret,omitempty" doc:"verifies what is sent; shown only when the webhook is created"`
	CreatedAt   time.Time  `json:"created_at"`
	DisabledAt  *time.Time `json:"disabled_at" doc:"when the platform stopped sending; null: it sends"`
	DisabledWhy string     `json:"disabled_why" doc:"why it stopped; empty: it sends"`
}

// Delivery is one notice on its way to one webhook.
type Delivery struct {
	NoticeID    id.Notice  `json:"notice_id"`
	Title       string     `json:"title"`
	State       string     `json:"state" enum:"pending,delivered,failed" doc:"failed: given up; it can be retried"`
	Attempts    int        `json:"attempts"`
	Status      int        `json:"status" doc:"the status of the last answer; 0: there was none"`
	Error       string     `json:"error" doc:"what was wrong with the last attempt; empty: nothing"`
	CreatedAt   time.Time  `json:"created_at"`
	NextAt      *time.Time `json:"next_at" doc:"when it is tried next; null: it is not"`
	DeliveredAt *time.Time `json:"delivered_at" doc:"when it arrived; null: it has not"`
}

// DeliveryRetried is the answer to a retry of a delivery.
type DeliveryRetried struct {
	WebhookID id.Webhook `json:"webhook_id"`
	NoticeID  id.Notice  `json:"notice_id"`
}

// NoticeCreated is the type of the event that a webhook receives for each notice.
const NoticeCreated = "notice.created"

// WebhookEvent is the body that a webhook receives.
type WebhookEvent struct {
	ID        id.Notice     `json:"id"` // the same however often it is sent
	Type      string        `json:"type"`
	CreatedAt time.Time     `json:"created_at"`
	Data      WebhookNotice `json:"data"`
}

// WebhookNotice is the notice in an event.
type WebhookNotice struct {
	ID       id.Notice `json:"id"`
	OrgID    id.Org    `json:"org_id"`
	Severity string    `json:"severity"`
	Title    string    `json:"title"`
	Body     string    `json:"body"`
	Object   string    `json:"object"`
}

// SignatureHeader is the header with the signature of a webhook's body: "t=1700000000,v1=<hex>".
const SignatureHeader = "Muster-Signature"

// SignWebhook returns the signature of a body: HMAC-SHA256, with the webhook's secret, of the time in Unix seconds, a
// full stop and the body.
func SignWebhook(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(signatureOf(secret, t, body))
}

func signatureOf(secret, t string, body []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(m, "%s.%s", t, body)
	return m.Sum(nil)
}

// WebhookTolerance is the greatest difference between the clocks of sender and receiver that VerifyWebhook accepts.
const WebhookTolerance = 5 * time.Minute

// VerifyWebhook checks the signature of a body that a webhook has received. It refuses a signature that is older than
// WebhookTolerance, so that a request cannot be replayed later.
func VerifyWebhook(secret, header string, body []byte, now time.Time) error {
	var t string
	var signatures []string
	for _, part := range strings.Split(header, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			t = value
		case "v1":
			signatures = append(signatures, value)
		}
	}
	seconds, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return errors.New("the signature has no time")
	}
	if d := now.Sub(time.Unix(seconds, 0)); d > WebhookTolerance || d < -WebhookTolerance {
		return errors.New("the signature is too old, or the clocks differ")
	}
	want := signatureOf(secret, t, body)
	for _, s := range signatures {
		if got, err := hex.DecodeString(s); err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errors.New("the signature is wrong")
}

// ReadNoticesRequest is the body of ReadNotices.
type ReadNoticesRequest struct {
	Newest id.Notice `json:"newest" doc:"the newest notice that was read: it and all older ones are marked"`
}

// CreateWebhookRequest is the body of CreateWebhook.
type CreateWebhookRequest struct {
	URL string `json:"url" maxLength:"2000" doc:"begins with https://, and is on the internet"`
}

// NoticesQuery selects notices.
type NoticesQuery struct {
	PageOf
	Unread bool `query:"unread" doc:"only notices that no member has read"`
}
