package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// AuditRows converts audit events for pages.
func (s *Site) AuditRows(list []audit.Found) []view.AuditRow {
	out := make([]view.AuditRow, len(list))
	for i, e := range list {
		r := view.AuditRow{
			Time:    e.At.UTC().Format("2 Jan 2006 15:04:05"),
			Who:     e.Email,
			Org:     e.Org.String(),
			OrgName: e.OrgName,
			Action:  e.Action,
			Said:    acts[e.Action],
			Object:  e.Object,
			Name:    e.Name,
			Address: e.Address,
		}
		if strings.HasPrefix(e.Object, "ses_") && e.Name != "" {
			r.Name = e.Name + ", " + BrowserName(e.Browser)
		}
		for _, name := range slices.Sorted(maps.Keys(e.Detail)) {
			text := detailText(name, e.Detail[name])
			switch {
			case text == "":
			case name == "reason":
				r.Reason = text
			default:
				r.Facts = append(r.Facts, view.TrailFact{Name: factName(name), Text: text})
			}
		}
		out[i] = r
	}
	return out
}

// KnownActs returns the actions that the audit log has words for, by their names.
func KnownActs() []view.TrailFact {
	var out []view.TrailFact
	for _, name := range slices.Sorted(maps.Keys(acts)) {
		out = append(out, view.TrailFact{Name: name, Text: acts[name]})
	}
	return out
}

// acts describe the actions of the audit log. An action that is missing is shown by its name.
var acts = map[string]string{
	"agent_channel.set":        "Set a channel's agent version",
	"gpu.requalify":            "Had a GPU reset and checked",
	"version_floor.remove":     "Removed an oldest version",
	"version_floor.set":        "Set the oldest version of hosts' programs",
	"billing.auto_topup":       "Set automatic top-up",
	"billing.card_default":     "Chose the card that pays",
	"billing.card_page":        "Opened Stripe's page for a card",
	"billing.card_remove":      "Removed a card",
	"billing.postpaid":         "Set a credit limit",
	"billing.refund":           "Refunded unused balance",
	"billing.refund_release":   "Paid hosts what a refund held back",
	"billing.tax_remit":        "Recorded a payment to a tax office",
	"billing.topup":            "Added credit",
	"billing.bank_payment":     "Recorded a bank transfer after a dispute",
	"billing.write_off":        "Wrote off an invoice",
	"bond.deposit":             "Deposited into the bond",
	"bond.host_liability":      "Set what a host may be liable for in a gang",
	"bond.terms":               "Set the terms of the bond",
	"bond.withdraw":            "Withdrew from the bond",
	"budget.remove":            "Removed a budget",
	"template.create":          "Saved a template",
	"template.delete":          "Deleted a template",
	"budget.set":               "Set a budget",
	"cluster.app":              "Opened a link to a cluster's port",
	"cluster.forward":          "Forwarded a port of a cluster",
	"cluster.release":          "Released a cluster",
	"cluster.rent":             "Rented a cluster",
	"cluster.restart":          "Restarted a cluster",
	"cluster.shell":            "Opened a shell, ran a command or moved files",
	"host.data_cap":            "Set a host's data cap",
	"host.drain":               "Drained a host",
	"host.enroll":              "Enrolled a host",
	"gpu.contest":              "Listed a GPU that another operator lists",
	"gpu.moved":                "Lost a GPU to another host that lists it",
	"gpu.award":                "Awarded a contested GPU",
	"host.foreign_reply":       "A host requested replies addressed to another host",
	"host.reclaim":             "Reclaimed a host",
	"host.resume":              "Resumed a host",
	"host.retire":              "Retired a host",
	"host.vanish":              "Retired an ephemeral host that had not reported",
	"host.engine_away":         "A host's container engine stopped answering",
	"host.agent_too_old":       "A host's agent was found too old for new leases",
	"host.second_connection":   "A second machine used a host's key",
	"lease.unfreeze":           "Unfroze a lease's money",
	"ledger.compensate":        "Refunded a charge",
	"ledger.propose":           "Proposed an entry of the ledger",
	"ledger.approve_entry":     "Approved a proposed entry of the ledger",
	"ledger.refuse_entry":      "Refused a proposed entry of the ledger",
	"operator.fee":             "Set an operator's fee",
	"org.legal_erase":          "Erased legal details",
	"org.legal_set":            "Set legal details",
	"org.zone_set":             "Set the time zone",
	"invitation.decline":       "Declined an invitation",
	"invitation.send":          "Invited a person",
	"invitation.withdraw":      "Withdrew an invitation",
	"member.join":              "Joined the organisation",
	"member.leave":             "Left the organisation",
	"member.remove":            "Removed a member",
	"member.role":              "Changed a member's role",
	"session.switch":           "Switched to this organisation",
	"payout.account":           "Set up payouts",
	"payout.now":               "Paid an operator out",
	"payout.reverse":           "Reversed a payout",
	"payout.review_refuse":     "Refused earnings in review",
	"payout.review_release":    "Released earnings in review",
	"payout.stop":              "Stopped or resumed payouts",
	"platform.restore":         "Adopted a restored database",
	"sending.pause":            "Paused all sending of money",
	"sending.resume":           "Resumed the sending of money",
	"promo.create":             "Created a promo code",
	"promo.disable":            "Ended a promo code",
	"promo.redeem":             "Redeemed a promo code",
	"session.close":            "Signed out",
	"session.close_all":        "Signed out everywhere",
	"session.open":             "Signed in",
	"ssh_key.add":              "Added an SSH key",
	"ssh_key.delete":           "Removed an SSH key",
	"token.create":             "Created an API token",
	"token.revoke":             "Revoked an API token",
	"volume.create":            "Created a volume",
	"volume.clone":             "Created a volume from a snapshot",
	"volume.change":            "Changed a volume",
	"volume.snapshot":          "Requested a snapshot of a volume",
	"volume.restore":           "Restored a volume's earlier snapshot",
	"volume.upload":            "Uploaded files to a volume",
	"volume.download":          "Downloaded files of a volume",
	"volume.delete":            "Deleted a volume or a snapshot",
	"bucket.create":            "Added a bucket",
	"bucket.rotate":            "Replaced a bucket's credentials",
	"bucket.check":             "Checked a bucket",
	"bucket.delete":            "Deleted a bucket",
	"shared.declare":           "Declared a shared file system",
	"shared.withdraw":          "Withdrew a shared file system",
	"shared.erase":             "Deleted its data on a shared file system",
	"webhook.create":           "Created a webhook",
	"webhook.delete":           "Deleted a webhook",
	"webhook.enable":           "Enabled a webhook again",
	"webhook.retry":            "Retried notices to a webhook",
	"user.admin":               "Granted or revoked staff access",
	"billing.disputes_forgive": "Forgave lost disputes",
	"billing.refund_allow":     "Allowed a refund beyond the limit",
	"user.delete":              "Deleted a person's data",
	"user.totp_on":             "Turned on two-factor sign-in",
	"user.totp_off":            "Turned off two-factor sign-in",
	"user.recovery_codes":      "Renewed recovery codes",
	"user.factors_reset":       "Removed a person's second factors",
	"device_login.grant":       "Granted a login of a program",
	"device_login.deny":        "Denied a login of a program",
	"passkey.add":              "Added a passkey",
	"passkey.remove":           "Removed a passkey",
	"user.email_change":        "Changed the e-mail address",
	"user.email_change_sent":   "Requested a change of the e-mail address",
	"user.email_verified":      "Verified an e-mail address",
	"user.password":            "Changed the password",
	"user.password_reset":      "Reset the password",
	"user.password_reset_sent": "Asked for a link to reset the password",
	"user.sign_up":             "Signed up",
	"user.sign_up_again":       "Sign-up with the address of this account refused",
	"user.verification_sent":   "Asked for a verification link",
}

// factNames are the labels of details whose label is not their key with spaces.
var factNames = map[string]string{
	"at":             "at, UTC",
	"enrollment":     "enrolment",
	"fee_ppm":        "fee",
	"gpus":           "GPUs",
	"gpus_per_node":  "GPUs per node",
	"max_uses":       "uses at most",
	"notice_seconds": "notice",
	"org":            "organisation",
	"percent":        "hosts",
	"vat_id":         "VAT id",
	"was":            "before",
	"was_limit":      "limit before",
}

func factName(key string) string {
	if name, ok := factNames[key]; ok {
		return name
	}
	return strings.ReplaceAll(key, "_", " ")
}

// amounts are the details that hold money, as decimals.
var amounts = []string{"amount", "cap", "credit_limit", "daily_cap", "limit", "posted", "price_per_hour", "threshold",
	"total", "was_limit"}

// detailText formats a detail; "" if it is empty.
func detailText(key string, v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case float64: // numbers in JSON
		switch {
		case key == "fee_ppm":
			return strconv.FormatFloat(v/10_000, 'f', -1, 64) + " %"
		case key == "percent":
			return strconv.FormatFloat(v, 'f', -1, 64) + " %"
		case strings.HasSuffix(key, "_seconds"):
			return view.Dur(time.Duration(v) * time.Second)
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		if n, err := money.ParseNano(v); err == nil && slices.Contains(amounts, key) {
			return n.Plain()
		}
		if t, err := time.Parse(time.RFC3339, v); err == nil {
			return t.UTC().Format("2006-01-02 15:04:05")
		}
		return v
	case []any:
		words := make([]string, len(v))
		for i, x := range v {
			words[i] = detailText("", x)
		}
		return strings.Join(words, ", ")
	case map[string]any:
		words := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			words = append(words, factName(name)+" "+detailText(name, v[name]))
		}
		return strings.Join(words, ", ")
	}
	return fmt.Sprint(v)
}
