package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Inputs that many routes have. T is the type of the id in the path, B that of the body.
type (
	// of is a GET or DELETE of an object.
	of[T any] struct {
		ID T `path:"id"`
	}
	// change is a PATCH or PUT of an object.
	change[T, B any] struct {
		ID   T `path:"id"`
		Body B
	}
	// replace is a PUT or PATCH of what the caller has one of.
	replace[B any] struct {
		Body B
	}
	// create is a POST that creates an object.
	create[B any] struct {
		Keyed
		Body B
	}
	// act is a POST to an object that exists.
	act[T, B any] struct {
		Keyed
		ID   T `path:"id"`
		Body B
	}
	// keyedOf is act without a body.
	keyedOf[T any] struct {
		Keyed
		ID T `path:"id"`
	}
)

// kindOf names the kind of object that each type of id in a path identifies, for people.
var kindOf = map[reflect.Type]string{
	reflect.TypeFor[id.Bucket]():         "bucket",
	reflect.TypeFor[id.Budget]():         "budget",
	reflect.TypeFor[id.Card]():           "card",
	reflect.TypeFor[id.CardSetup]():      "page for saving a card",
	reflect.TypeFor[id.Cluster]():        "cluster",
	reflect.TypeFor[id.DataSession]():    "transfer",
	reflect.TypeFor[id.Host]():           "host",
	reflect.TypeFor[id.Invitation]():     "invitation",
	reflect.TypeFor[id.Lease]():          "lease",
	reflect.TypeFor[id.LedgerProposal](): "proposal",
	reflect.TypeFor[id.LedgerTx]():       "entry",
	reflect.TypeFor[id.Notice]():         "notice",
	reflect.TypeFor[id.Org]():            "organisation",
	reflect.TypeFor[id.Payout]():         "payout",
	reflect.TypeFor[id.PayoutReview]():   "review",
	reflect.TypeFor[id.Quote]():          "quote",
	reflect.TypeFor[id.SSHKey]():         "SSH key",
	reflect.TypeFor[id.Session]():        "session",
	reflect.TypeFor[id.SharedFS]():       "shared file system",
	reflect.TypeFor[id.Token]():          "token",
	reflect.TypeFor[id.TopUp]():          "top-up",
	reflect.TypeFor[id.User]():           "member",
	reflect.TypeFor[id.Volume]():         "volume",
	reflect.TypeFor[id.Webhook]():        "webhook",
}

// pathIDs are the ids in the path of a type of input.
type pathIDs []pathID

type pathID struct {
	name  string // in the path
	index []int  // of the field
	kind  string // of the object
}

// pathIDsOf returns the ids in the path of an input. It panics if kindOf lacks a kind: that is a mistake in the table.
func pathIDsOf(input reflect.Type) (ids pathIDs) {
	for _, f := range reflect.VisibleFields(input) {
		name, ok := f.Tag.Lookup("path")
		if !ok || f.Type.Kind() != reflect.Struct {
			continue
		}
		kind := kindOf[f.Type]
		if kind == "" {
			panic("api: kindOf lacks " + f.Type.String())
		}
		ids = append(ids, pathID{name, f.Index, kind})
	}
	return ids
}

// check returns NotFound for an id that is zero: it identifies nothing.
func (ids pathIDs) check(input any) error {
	v := reflect.ValueOf(input).Elem()
	for _, x := range ids {
		if v.FieldByIndex(x.index).IsZero() {
			return notFound(x.kind)
		}
	}
	return nil
}

// pathIDsKey is the key of an operation's pathIDs in its metadata.
const pathIDsKey = "path ids"

// notFoundBy returns the kind of object that does not exist because the text in the path is not an id of that kind, and
// "" if no error of a request says so.
func notFoundBy(op *huma.Operation, errs []*huma.ErrorDetail) string {
	ids, _ := op.Metadata[pathIDsKey].(pathIDs)
	for _, e := range errs {
		for _, x := range ids {
			if e != nil && e.Location == "path."+x.name {
				return x.kind
			}
		}
	}
	return ""
}

func notFound(kind string) error { return fault.New(fault.NotFound, "%s not found", kind) }

// amount parses an amount of money in a request. Fault: Invalid, of the field.
func amount(field, text string) (money.Nano, error) {
	n, err := money.ParseNano(text)
	if err != nil {
		return 0, fault.InvalidField(field, "%s", err)
	}
	return n, nil
}

// positiveOrNone parses an amount that may be left out: then it is 0. Fault: Invalid, of the field.
func positiveOrNone(field, text string) (money.Nano, error) {
	if text == "" {
		return 0, nil
	}
	n, err := money.ParseNano(text)
	if err != nil || n <= 0 {
		return 0, fault.InvalidField(field, "is a decimal above zero")
	}
	return n, nil
}
