CREATE TABLE items (id serial PRIMARY KEY, title text NOT NULL, done boolean NOT NULL DEFAULT false);
INSERT INTO items (title, done) VALUES ('Buy milk', false), ('Call Ann', false), ('Water the plants', true);
