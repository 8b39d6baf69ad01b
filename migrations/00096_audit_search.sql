-- +goose Up
-- What was done to an object, and to an org that is not the one who acted.
CREATE INDEX audit_event_object ON audit_event (object, id) WHERE object <> '';
CREATE INDEX audit_event_about ON audit_event ((detail->>'org'), id) WHERE detail ? 'org';
CREATE INDEX audit_event_renter ON audit_event ((detail->>'renter'), id) WHERE detail ? 'renter';
