package api

import (
	"cmp"
	"reflect"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/fault"
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

// kinds are the names, for people, of kinds of object that have another one than their type of id in package id.
var kinds = map[string]string{
	"cardSetup":      "page for saving a card",
	"dataSession":    "transfer",
	"ledgerProposal": "proposal",
	"ledgerTx":       "entry",
	"org":            "organisation",
	"payoutReview":   "review",
	"sharedFS":       "shared file system",
	"sshKey":         "SSH key",
	"topUp":          "top-up",
	"user":           "member",
}

var kindInType = regexp.MustCompile(`\.(\w+)Kind\b`)

// kindOf names the kind of object that a type of id identifies: id.Volume is id.ID[id.volumeKind], a volume.
func kindOf(t reflect.Type) string {
	m := kindInType.FindStringSubmatch(t.Name())
	if m == nil {
		panic("api: " + t.String() + " is no type of id")
	}
	return cmp.Or(kinds[m[1]], m[1])
}

// pathIDs are the ids in the path of a type of input.
type pathIDs []pathID

type pathID struct {
	name  string // in the path
	index []int  // of the field
	kind  string // of the object
}

// pathIDsOf returns the ids in the path of an input.
func pathIDsOf(input reflect.Type) (ids pathIDs) {
	for _, f := range reflect.VisibleFields(input) {
		name, ok := f.Tag.Lookup("path")
		if !ok || f.Type.Kind() != reflect.Struct {
			continue
		}
		ids = append(ids, pathID{name, f.Index, kindOf(f.Type)})
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
