package sandbox

import (
	"fmt"
	"html/template"
	"net/http"
)

var pages = template.Must(template.New("").Parse(`{{define "top"}}<!doctype html><html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sandbox: {{.Title}}</title><body><h1>{{.Title}}</h1>
<p>This is the sandbox, not Stripe: no real money moves.</p>{{end}}
{{define "pay"}}{{template "top" .}}<p>{{.What}}</p><form method="post">
<button name="method" value="pm_card_visa">Visa 4242</button>
<button name="method" value="pm_card_mastercard">Mastercard 4444</button>
<button name="method" value="pm_card_authenticationRequired">Visa 3184, whose bank asks</button>
<button name="method" value="pm_card_chargeCustomerFail">Visa 0341, saved but never charged</button>
<button name="method" value="pm_card_visa_chargeDeclined">Visa 0002, declined</button></form>
{{if .Failed}}<p role="alert">Your card was declined.</p>{{end}}<p><a href="{{.Back}}">Back</a></p></body></html>{{end}}
{{define "bank"}}{{template "top" .}}<p>{{.What}}</p><form method="post">
<button name="answer" value="yes">Yes, this is me</button> <button name="answer" value="no">No</button></form></body>
</html>{{end}}
{{define "account"}}{{template "top" .}}<p>{{.What}}</p><form method="post">
<button name="answer" value="all">Give everything</button>
<button name="answer" value="no_bank">All but the bank account</button>
<button name="answer" value="document">All, and Stripe wants a document</button>
<button name="answer" value="later">Later</button></form></body></html>{{end}}
{{define "receipt"}}{{template "top" .}}<p>{{.What}}</p></body></html>{{end}}`))

type pageData struct {
	Title, What, Back string
	Failed            bool
}

func show(w http.ResponseWriter, name string, d pageData) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_ = pages.ExecuteTemplate(w, name, d) // a browser that has gone away sees nothing
}

func cents(n int64, currency string) string { return fmt.Sprintf("%d.%02d %s", n/100, n%100, currency) }
