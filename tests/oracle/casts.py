"""Referees for cast_value: the text in exact fractions, and the package that zarr-python casts with.

  {"op": "cast_exactly", "source": "float64", "target": "int8", "data": …}
  {"op": "cast_by_package", "source": …, "target": …, "data": …}
      -> {"modes": {"nearest-even": {"none": […], "clamp": […], "wrap": […]}, …}}

Each list has, for each element, the target's bytes in hex or null for an error. NaNs are "nan".
"""

import base64
from fractions import Fraction

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

ROUNDINGS = ["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"]
OUT_OF_RANGES = ["none", "clamp", "wrap"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def is_integer(name):
    return "int" in name


def values_of(name, data):
    """Exact values: a Fraction with the sign of a zero, or "nan", "inf", "-inf"."""
    elements = np.frombuffer(base64.b64decode(data), dtype=dtype_of(name))
    if is_integer(name):
        return [(Fraction(int(element)), False) for element in elements]
    values = []
    for element in elements:
        number = float(element)
        if number != number:
            values.append(("nan", False))
        elif number in (float("inf"), float("-inf")):
            values.append((str(number), False))
        else:
            values.append((Fraction(number), number == 0 and str(number)[0] == "-"))
    return values


def whole(value, rounding):
    """The value rounded to a whole number."""
    floor = value.numerator // value.denominator
    rest = value - floor
    if rest == 0:
        return floor
    if rounding == "towards-negative":
        return floor
    if rounding == "towards-positive":
        return floor + 1
    if rounding == "towards-zero":
        return floor if value > 0 else floor + 1
    if rest != Fraction(1, 2):
        return floor if rest < Fraction(1, 2) else floor + 1
    if rounding == "nearest-away":
        return floor + 1 if value > 0 else floor
    return floor + floor % 2


def power(exponent):
    return Fraction(2) ** exponent


def log2_floor(value):
    """The exponent of the greatest power of two that is not above the value."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if power(exponent) <= value else exponent - 1


class Integer:
    def __init__(self, name):
        self.dtype = dtype_of(name)
        self.bits = int(name.split("int")[1])
        is_signed = not name.startswith("u")
        self.least = -(2 ** (self.bits - 1)) if is_signed else 0
        self.greatest = self.least + 2**self.bits - 1

    def cast(self, value, is_negative_zero, rounding, out_of_range):
        if isinstance(value, str):
            return None
        number = whole(value, rounding)
        if not self.least <= number <= self.greatest:
            if out_of_range == "none":
                return None
            if out_of_range == "clamp":
                number = self.least if number < self.least else self.greatest
            else:
                number = (number - self.least) % 2**self.bits + self.least
        return int(number).to_bytes(self.dtype.itemsize, "little", signed=self.least < 0).hex()


class Float:
    def __init__(self, name):
        self.dtype = dtype_of(name)
        info = np.finfo(self.dtype) if name in ("float16", "float32", "float64") else ml_dtypes.finfo(self.dtype)
        self.precision = int(info.nmant) + 1
        self.greatest = Fraction(float(info.max))
        self.has_zero = name != "float8_e8m0fnu"
        self.least_exponent = int(info.minexp) if self.has_zero else -127
        self.has_infinity = not name.endswith(("fn", "fnuz", "fnu"))
        self.has_nan = self.has_infinity or name.endswith(("fnuz", "fnu")) or name == "float8_e4m3fn"
        self.has_negative_zero = self.has_zero and not name.endswith("fnuz")

    def code(self, number):
        return np.array([number], dtype="float64").astype(self.dtype).tobytes().hex()

    def cast(self, value, is_negative_zero, rounding, out_of_range):
        if value == "nan":
            return "nan" if self.has_nan else None
        if value in ("inf", "-inf"):
            return self.code(float(value)) if self.has_infinity else None
        is_negative = value < 0 or is_negative_zero
        rounded = Fraction(0)
        if value != 0:
            exponent = log2_floor(abs(value))
            if self.has_zero:
                exponent = max(exponent, self.least_exponent)
            place = power(exponent - self.precision + 1)
            rounded = whole(value / place, rounding) * place
            # IEEE 754, roundTiesToEven: one-digit significands are all odd, and then the greater magnitude counts.
            if self.precision == 1 and rounding == "nearest-even":
                rounded = whole(value / place, "nearest-away") * place
        least = -self.greatest if self.has_zero else power(self.least_exponent)
        if not least <= rounded <= self.greatest:
            if out_of_range != "clamp":
                return None
            if self.has_infinity:
                return self.code(float("-inf") if is_negative else float("inf"))
            rounded = least if rounded < least else self.greatest
        if rounded == 0 and is_negative and self.has_negative_zero:
            return self.code(-0.0)
        return self.code(float(rounded))


def cast_exactly(source, target, data):
    values = values_of(source, data)
    to = Integer(target) if is_integer(target) else Float(target)
    return {
        "modes": {
            rounding: {
                out_of_range: [to.cast(*value, rounding, out_of_range) for value in values]
                for out_of_range in OUT_OF_RANGES
            }
            for rounding in ROUNDINGS
        }
    }


def cast_by_package(source, target, data):
    from cast_value_rs import cast_array

    elements = np.frombuffer(base64.b64decode(data), dtype=source)

    def cast(elements, rounding, out_of_range):
        mode = None if out_of_range == "none" else out_of_range
        try:
            found = cast_array(elements, target_dtype=np.dtype(target), rounding_mode=rounding, out_of_range_mode=mode)
        except (ValueError, OverflowError):
            if len(elements) == 1:
                return [None]
            return [cast(elements[i : i + 1], rounding, out_of_range)[0] for i in range(len(elements))]
        return ["nan" if one != one else one.tobytes().hex() for one in found]

    return {
        "modes": {
            rounding: {out_of_range: cast(elements, rounding, out_of_range) for out_of_range in OUT_OF_RANGES}
            for rounding in ROUNDINGS
        }
    }
