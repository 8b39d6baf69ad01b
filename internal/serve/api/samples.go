package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// commands are the commands of the program muster that do what an operation does. A test of package cli holds them to
// the commands that exist.
var commands = map[string]string{
	"getMe":             "muster whoami",
	"listSessions":      "muster account sessions list",
	"endSession":        "muster account sessions end SESSION",
	"changePassword":    "muster account password",
	"exportMe":          "muster account export",
	"deleteMe":          "muster account delete",
	"getLegal":          "muster org legal",
	"setZone":           "muster org zone Europe/Berlin",
	"listMyOrgs":        "muster org list",
	"acceptInvitation":  "muster org join INVITATION",
	"leaveOrg":          "muster org leave",
	"listMembers":       "muster org members list",
	"createInvitation":  "muster org members invite ada@example.com --role member",
	"listTokens":        "muster token list",
	"createToken":       "muster token create ci --scope clusters",
	"revokeToken":       "muster token revoke TOKEN",
	"listSSHKeys":       "muster ssh-key list",
	"listNotices":       "muster notice list --unread",
	"readNotice":        "muster notice read NOTICE",
	"readNotices":       "muster notice read NOTICE --older",
	"listWebhooks":      "muster webhook list",
	"createWebhook":     "muster webhook create https://example.com/muster",
	"deleteWebhook":     "muster webhook delete WEBHOOK",
	"enableWebhook":     "muster webhook enable WEBHOOK",
	"listDeliveries":    "muster webhook deliveries WEBHOOK",
	"retryDelivery":     "muster webhook retry WEBHOOK NOTICE",
	"addSSHKey":         "muster ssh-key add ~/.ssh/id_ed25519.pub",
	"deleteSSHKey":      "muster ssh-key delete KEY",
	"searchOffers":      "muster offers 'h100 region=eu-west'",
	"getEstimate":       "muster estimate --nodes 2 --gpus 4 --gpu h100",
	"createQuote":       "muster quote --nodes 2 --gpus 4 --gpu h100",
	"getQuote":          "muster quote show QUOTE",
	"returnQuote":       "muster quote return QUOTE",
	"listTemplates":     "muster template list",
	"getTemplate":       "muster template show TEMPLATE",
	"deleteTemplate":    "muster template delete TEMPLATE",
	"listVolumes":       "muster volume list",
	"createVolume":      "muster volume create training-data --size 100",
	"getVolume":         "muster volume show VOLUME",
	"changeVolume":      "muster volume set VOLUME --size 200",
	"deleteVolume":      "muster volume delete VOLUME",
	"snapshotVolume":    "muster volume snapshot VOLUME",
	"restoreVolume":     "muster volume restore VOLUME 12",
	"cloneVolume":       "muster volume clone VOLUME training-data-2",
	"listVolumeFiles":   "muster volume files VOLUME",
	"getVolumeContent":  "muster volume get VOLUME checkpoints/model.pt",
	"openTransfer":      "muster volume cp ./data VOLUME:/data",
	"listShared":        "muster shared list",
	"declareShared":     "muster shared declare lab-nfs --kind nfs --quota 500",
	"withdrawShared":    "muster shared withdraw lab-nfs",
	"eraseSharedData":   "muster shared erase lab-nfs",
	"listBuckets":       "muster bucket list",
	"createBucket":      "muster bucket create results --endpoint https://s3.amazonaws.com --bucket acme-results",
	"getBucket":         "muster bucket show BUCKET",
	"rotateBucket":      "muster bucket rotate BUCKET",
	"checkBucket":       "muster bucket check BUCKET",
	"deleteBucket":      "muster bucket delete BUCKET",
	"rentCluster":       "muster cluster create --nodes 2 --gpus 4 --image pytorch/pytorch:2.4.0 -- python train.py",
	"listClusters":      "muster cluster list",
	"getCluster":        "muster cluster show CLUSTER",
	"releaseCluster":    "muster cluster release CLUSTER",
	"listClusterEvents": "muster cluster events CLUSTER",
	"streamClusterLogs": "muster cluster logs CLUSTER",
	"sshToCluster":      "muster cluster ssh CLUSTER",
	"getPortLink":       "muster cluster open CLUSTER 8888",
	"getClusterUsage":   "muster cluster usage CLUSTER",
	"getClusterProof":   "muster billing verify CLUSTER",
	"createEnrollment":  "muster host enroll --region eu-west",
	"listHosts":         "muster host list",
	"getHost":           "muster host show HOST",
	"changeHost":        "muster host set HOST --price 2.50",
	"getHostEarnings":   "muster host earnings HOST",
	"getHostMetrics":    "muster host metrics HOST",
	"listContestedGPUs": "muster host contested",
	"getBalance":        "muster billing balance",
	"getStanding":       "muster billing standing",
	"getStatement":      "muster statement",
	"createTopUp":       "muster billing topup 50",
	"listTopUps":        "muster billing topups",
	"listCards":         "muster billing cards list",
	"createRefund":      "muster billing refund 10",
	"redeemCode":        "muster billing redeem CODE",
	"listTransactions":  "muster billing transactions",
	"listDocuments":     "muster document list",
	"getDocument":       "muster document show NUMBER",
	"listBudgets":       "muster budget list",
	"listPayouts":       "muster payout list",
	"getBond":           "muster host bond show",
	"listAuditEvents":   "muster org audit",
}

// addSamples adds to each operation how it is called with curl, and with the program muster where it has a command for
// it.
func (a *API) addSamples(d *huma.OpenAPI) {
	for _, op := range operations(d) {
		samples := []map[string]string{{"lang": "Shell", "label": "curl", "source": curl(a.cfg.PublicURL, op)}}
		if c := commands[op.OperationID]; c != "" {
			samples = append(samples, map[string]string{"lang": "Shell", "label": "muster", "source": c})
		}
		if op.Extensions == nil {
			op.Extensions = map[string]any{}
		}
		op.Extensions["x-codeSamples"] = samples
	}
}

// curl is a call of an operation that can be pasted.
func curl(server string, op *huma.Operation) string {
	var b strings.Builder
	b.WriteString("curl ")
	if op.Method != http.MethodGet {
		b.WriteString("-X " + op.Method + " ")
	}
	path := op.Path
	keyed := false
	query := url.Values{}
	for _, p := range op.Parameters {
		switch example := exampleOfParameter(p); {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", example)
		case p.In == "query" && p.Required:
			query.Set(p.Name, example)
		}
		keyed = keyed || p.Name == "Idempotency-Key"
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	b.WriteString("'" + server + path + "'")
	if len(op.Security) > 0 {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $MUSTER_TOKEN\"")
	}
	if keyed {
		b.WriteString(" \\\n  -H \"Idempotency-Key: $(uuidgen)\"")
	}
	if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
		raw, err := json.Marshal(op.RequestBody.Content["application/json"].Example)
		if err == nil && string(raw) != "null" {
			b.WriteString(" \\\n  -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(string(raw), "'", `'\''`) +
				"'")
		}
	}
	return b.String()
}

// exampleOfParameter returns the example of a parameter, which huma keeps in one of two places.
func exampleOfParameter(p *huma.Param) string {
	if p.Example == nil && len(p.Schema.Examples) > 0 {
		return fmt.Sprint(p.Schema.Examples[0])
	}
	return fmt.Sprint(p.Example)
}
