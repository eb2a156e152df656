-- Notes of several people. Nobody but the backend ever sees `flagged_by`.
CREATE TABLE notes (
  id int PRIMARY KEY,
  owner text NOT NULL,
  text text NOT NULL,
  flagged_by text
);
INSERT INTO notes VALUES (1, 'ann', 'buy milk', NULL), (2, 'ben', 'call the dentist', 'carol'), (3, 'ann', 'read a book', 'carol');
