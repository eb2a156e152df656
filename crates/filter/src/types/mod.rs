//! Known types of Postgres: names, categories, implicit conversions.

pub(crate) mod array;
pub(crate) mod cast;
pub(crate) mod datetime;
pub(crate) mod decimal;
pub(crate) mod float;
pub(crate) mod input;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod output;
pub(crate) mod value;

/// A type that is no array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// A literal whose type is not determined yet.
    Unknown,
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    Name,
    Uuid,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Json,
    Jsonb,
    /// The enum of this column.
    Enum(u16),
    /// The type of this column, of which we know nothing.
    Other(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Type {
    pub(crate) base: Base,
    pub(crate) array: bool,
}

/// `pg_type.typcategory`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Category {
    Boolean,
    Number,
    String,
    DateTime,
    Span,
    Enum,
    Array,
    User,
    Unknown,
}

impl From<Base> for Type {
    fn from(base: Base) -> Self {
        Self { base, array: false }
    }
}

impl Base {
    pub(crate) fn of_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            19 => Self::Name,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            25 => Self::Text,
            114 => Self::Json,
            700 => Self::Float4,
            701 => Self::Float8,
            1042 => Self::Bpchar,
            1043 => Self::Varchar,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::Timestamptz,
            1186 => Self::Interval,
            1700 => Self::Numeric,
            2950 => Self::Uuid,
            3802 => Self::Jsonb,
            _ => return None,
        })
    }

    /// The type with a canonical name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" => Self::Bool,
            "smallint" => Self::Int2,
            "integer" => Self::Int4,
            "bigint" => Self::Int8,
            "real" => Self::Float4,
            "double precision" => Self::Float8,
            "numeric" => Self::Numeric,
            "text" => Self::Text,
            "character varying" => Self::Varchar,
            "character" => Self::Bpchar,
            "name" => Self::Name,
            "uuid" => Self::Uuid,
            "bytea" => Self::Bytea,
            "date" => Self::Date,
            "time without time zone" => Self::Time,
            "timestamp without time zone" => Self::Timestamp,
            "timestamp with time zone" => Self::Timestamptz,
            "interval" => Self::Interval,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            _ => return None,
        })
    }

    /// Name in error messages. Names of enums and of types unknown here are not available.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Numeric => "numeric",
            Self::Text => "text",
            Self::Varchar => "character varying",
            Self::Bpchar => "character",
            Self::Name => "name",
            Self::Uuid => "uuid",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::Timestamptz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Enum(_) => "enum",
            Self::Other(_) => "a type that is not supported",
        }
    }

    pub(crate) fn category(self) -> Category {
        match self {
            Self::Unknown => Category::Unknown,
            Self::Bool => Category::Boolean,
            Self::Int2 | Self::Int4 | Self::Int8 | Self::Float4 | Self::Float8 | Self::Numeric => Category::Number,
            Self::Text | Self::Varchar | Self::Bpchar | Self::Name => Category::String,
            Self::Date | Self::Time | Self::Timestamp | Self::Timestamptz => Category::DateTime,
            Self::Interval => Category::Span,
            Self::Enum(_) => Category::Enum,
            Self::Uuid | Self::Bytea | Self::Json | Self::Jsonb | Self::Other(_) => Category::User,
        }
    }

    /// `pg_type.typispreferred`
    pub(crate) fn is_preferred(self) -> bool {
        matches!(self, Self::Bool | Self::Float8 | Self::Text | Self::Timestamptz | Self::Interval)
    }

    pub(crate) fn is_text(self) -> bool {
        self.category() == Category::String
    }

    /// Whether a value becomes one of another type without a cast being written (`pg_cast.castcontext = 'i'`).
    pub(crate) fn becomes(self, to: Self) -> bool {
        use Base::{
            Bpchar, Date, Float4, Float8, Int2, Int4, Int8, Interval, Name, Numeric, Text, Time, Timestamp,
            Timestamptz, Unknown, Varchar,
        };
        if self == to || self == Unknown {
            return true;
        }
        match self {
            Int2 => matches!(to, Int4 | Int8 | Numeric | Float4 | Float8),
            Int4 => matches!(to, Int8 | Numeric | Float4 | Float8),
            Int8 => matches!(to, Numeric | Float4 | Float8),
            Numeric => matches!(to, Float4 | Float8),
            Float4 => to == Float8,
            Text => matches!(to, Varchar | Bpchar | Name),
            Varchar => matches!(to, Text | Bpchar | Name),
            Bpchar => matches!(to, Text | Varchar | Name),
            Name => to == Text,
            Date => matches!(to, Timestamp | Timestamptz),
            Timestamp => to == Timestamptz,
            Time => to == Interval,
            _ => false,
        }
    }
}

impl Type {
    pub(crate) const UNKNOWN: Self = Self { base: Base::Unknown, array: false };
    pub(crate) const BOOL: Self = Self { base: Base::Bool, array: false };

    pub(crate) fn array(base: Base) -> Self {
        Self { base, array: true }
    }

    pub(crate) fn name(self) -> String {
        if self.array { format!("{}[]", self.base.name()) } else { self.base.name().to_owned() }
    }

    pub(crate) fn category(self) -> Category {
        if self.array { Category::Array } else { self.base.category() }
    }

    pub(crate) fn is_preferred(self) -> bool {
        !self.array && self.base.is_preferred()
    }

    pub(crate) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// Whether a value becomes one of another type by itself; an array does if its elements do.
    pub(crate) fn becomes(self, to: Self) -> bool {
        self.is_unknown() || self.array == to.array && self.base.becomes(to.base)
    }
}
